// Layers down, steps along, colour for the value: the whole run in one look.
// The matrix is one small image, scaled up strip by strip; one cell is selected by pointer or arrow key.

import { strips } from "./domain.js";
import { paint } from "./image.js";
import { drawStepAxis, onReshape, prepare, stepScale, theme } from "./plot.js";
import { spread } from "./scale.js";

const TOP = 4;
const BOTTOM = 26;
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Heatmap {
  // `onSelect(row, column)` and `onHover(cell or null)`, a cell being { row, column, x, y }.
  constructor(canvas, { onSelect, onHover }) {
    this.canvas = canvas;
    this.onSelect = onSelect;
    this.onHover = onHover;
    this.selected = { row: 0, column: 0 };
    canvas.addEventListener("pointermove", (event) => onHover(this.#cellAt(event)));
    canvas.addEventListener("pointerleave", () => onHover(null));
    canvas.addEventListener("blur", () => onHover(null));
    canvas.addEventListener("click", (event) => this.#click(event));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    onReshape(canvas.parentElement, () => this.draw());
  }

  // `matrix` is { layers, steps, values }, values one row a layer; `marks` are [row, column] pairs.
  show(matrix, domain, marks) {
    Object.assign(this, { matrix, domain, marks });
    this.strips = strips(matrix.steps);
    this.range = spread(matrix.values.flat());
    this.image = paint(matrix, this.range);
    this.draw();
  }

  select(row, column) {
    this.selected = { row, column };
    this.draw();
  }

  draw() {
    if (!this.matrix) return;
    this.area = { ...prepare(this.canvas), top: TOP };
    this.area.bottom = this.area.height - BOTTOM;
    this.scale = stepScale(this.domain, this.area);
    this.rowHeight = (this.area.bottom - TOP) / Math.max(this.matrix.layers.length, 1);
    const colours = theme();
    this.#drawHoles(colours);
    this.#drawCells();
    drawStepAxis(this.area, this.scale, colours, { grid: false });
    this.#drawLayerAxis(colours);
    this.#drawMarks(colours);
    this.#drawSelection(colours);
  }

  #box(row, column) {
    const { from, to } = this.strips[column];
    const left = Math.max(Math.round(this.scale.place(from)), this.area.left);
    const right = Math.max(Math.round(this.scale.place(to)), left + 1);
    const top = TOP + Math.round(row * this.rowHeight);
    const bottom = TOP + Math.round((row + 1) * this.rowHeight);
    return { left, top, width: right - left, height: bottom - top };
  }

  // Where nothing was measured, or the value is undefined, hatching shows through.
  #drawHoles({ line }) {
    const { context, left, right, top, bottom } = this.area;
    context.save();
    context.beginPath();
    context.rect(left, top, right - left, bottom - top);
    context.clip();
    context.strokeStyle = line;
    context.beginPath();
    for (let x = left - bottom; x < right; x += 7) {
      context.moveTo(x, bottom);
      context.lineTo(x + bottom, 0);
    }
    context.stroke();
    context.restore();
  }

  #drawCells() {
    const { context, top, bottom } = this.area;
    context.imageSmoothingEnabled = false;
    this.strips.forEach((_, column) => {
      const { left, width } = this.#box(0, column);
      context.drawImage(this.image, column, 0, 1, this.image.height, left, top, width, bottom - top);
    });
  }

  #drawLayerAxis({ ink, quiet }) {
    const { context, left } = this.area;
    const every = Math.max(1, Math.ceil(15 / this.rowHeight));
    context.textAlign = "right";
    context.textBaseline = "middle";
    this.matrix.layers.forEach((layer, row) => {
      const chosen = row === this.selected.row;
      const crowded = Math.abs(row - this.selected.row) * this.rowHeight < 13;
      if (!chosen && (row % every || crowded)) return;
      context.fillStyle = chosen ? ink : quiet;
      context.fillText(layer, left - 10, TOP + (row + 0.5) * this.rowHeight);
    });
  }

  #drawMarks({ warning }) {
    const { context } = this.area;
    for (const [row, column] of this.marks) {
      const { left, top, width, height } = this.#box(row, column);
      const radius = Math.max(Math.min(width, height, 12) / 3.2, 1.5);
      context.beginPath();
      context.arc(left + width / 2, top + height / 2, radius, 0, 2 * Math.PI);
      context.fillStyle = warning;
      context.fill();
      context.strokeStyle = "#fff";
      context.stroke();
    }
  }

  #drawSelection({ ink }) {
    const { row, column } = this.selected;
    if (this.matrix.layers[row] === undefined || !this.strips[column]) return;
    const { context, left, right } = this.area;
    const box = this.#box(row, column);
    const frame = (style, width, x, y, w, h) => {
      context.lineWidth = width;
      context.strokeStyle = style;
      context.strokeRect(x, y, w, h);
    };
    frame(ink, 1, left - 0.5, box.top - 0.5, right - left + 1, box.height + 1);
    frame("#fff", 2, box.left, box.top, box.width, box.height);
    frame("#000", 2, box.left - 2, box.top - 2, box.width + 4, box.height + 4);
  }

  #cellAt({ offsetX: x, offsetY: y }) {
    if (!this.matrix?.layers.length) return null;
    const row = Math.floor((y - TOP) / this.rowHeight);
    const step = this.scale.value(x);
    const column = this.strips.findIndex(({ from, to }) => from <= step && step < to);
    return this.matrix.layers[row] === undefined || column < 0 ? null : { row, column, x, y };
  }

  #click(event) {
    const cell = this.#cellAt(event);
    if (cell) this.onSelect(cell.row, cell.column);
  }

  #key(event) {
    if (!this.matrix?.layers.length) return;
    const { row, column } = this.selected;
    const last = { row: this.matrix.layers.length - 1, column: this.matrix.steps.length - 1 };
    const [down, along] = MOVES[event.key] ?? [0, { Home: -column, End: last.column - column }[event.key]];
    if (along === undefined) return;
    event.preventDefault();
    const next = { row: clamp(row + down, last.row), column: clamp(column + along, last.column) };
    this.onSelect(next.row, next.column);
    const box = this.#box(next.row, next.column);
    this.onHover({ ...next, x: box.left + box.width / 2, y: box.top });
  }
}

function clamp(index, last) {
  return Math.min(Math.max(index, 0), last);
}
