// Series over steps: a bold line for the whole, thin ones for the heads, rules where findings were made.

import { drawCurve } from "./curve.js";
import { drawStepAxis, drawValueAxis, onReshape, prepare, stepScale, stroke, theme } from "./plot.js";
import { fraction, linear, spread, withAir } from "./scale.js";
import { closestStep, valueAt } from "./series.js";

const TOP = 18;
const BOTTOM = 26;
const TICK = 7;
const FIRST = "first finding";

export class Lines {
  // `onRead(step or null, nearest series or null)` follows the pointer.
  constructor(canvas, { onRead }) {
    this.canvas = canvas;
    this.onRead = onRead;
    this.cursor = null;
    this.nearest = null;
    canvas.addEventListener("pointermove", (event) => this.#hover(event));
    canvas.addEventListener("pointerleave", () => this.#leave());
    onReshape(canvas.parentElement, () => this.draw());
  }

  // `series` without a unit are drawn bold; `marks` are steps, ascending, at which findings were made.
  show(series, { domain, step, marks }) {
    Object.assign(this, { series, domain, step, marks });
    const range = spread(series.flatMap((each) => each.values));
    this.range = range && withAir(range);
    if (!series.includes(this.nearest)) this.nearest = null;
    this.draw();
  }

  // Draws the rule of another chart's pointer.
  point(step) {
    if (this.cursor === step || !this.series) return;
    this.cursor = step;
    this.draw();
  }

  draw() {
    if (!this.series) return;
    this.area = { ...prepare(this.canvas), top: TOP };
    this.area.bottom = this.area.height - BOTTOM;
    this.scale = stepScale(this.domain, this.area);
    this.vertical = linear(0, 1, this.area.bottom, TOP);
    const colours = theme();
    drawStepAxis(this.area, this.scale, colours);
    if (!this.range) return;
    drawValueAxis(this.area, this.range, (value) => this.#y(value), colours);
    this.#drawMarks(colours);
    this.#drawRule(this.step, colours.quiet, [3, 3]);
    this.#drawRule(this.cursor, colours.ink, []);
    this.#drawCurves(colours);
  }

  #drawCurves({ thread, accent, ink, paper }) {
    const draw = (series, style, width) =>
      drawCurve(this.area.context, series, (step, value) => [this.scale.place(step), this.#y(value)], { style, width, paper });
    const [whole, units] = [this.series.filter((each) => !each.unit), this.series.filter((each) => each.unit)];
    for (const each of units) draw(each, thread, 1);
    for (const each of whole) draw(each, accent, 2);
    if (this.nearest?.unit) draw(this.nearest, ink, 1.5);
  }

  // The first finding is a rule that says so, the others are ticks at the top.
  #drawMarks({ warning, quiet }) {
    const { context, left, right } = this.area;
    for (const step of this.marks.slice(1)) {
      const x = Math.round(this.scale.place(step)) + 0.5;
      if (x >= left && x <= right + 1) stroke(context, warning, [x, TOP], [x, TOP + TICK]);
    }
    const [first] = this.marks;
    if (first === undefined) return;
    this.#drawRule(first, warning, []);
    const half = context.measureText(FIRST).width / 2;
    context.textAlign = "center";
    context.textBaseline = "bottom";
    context.fillStyle = quiet;
    context.fillText(FIRST, Math.min(Math.max(this.scale.place(first), left + half), right - half), TOP - 3);
  }

  #drawRule(step, style, dash) {
    if (step === null || step === undefined) return;
    const { context, left, right, bottom } = this.area;
    const x = Math.round(this.scale.place(step)) + 0.5;
    if (x < left || x > right + 1) return;
    context.setLineDash(dash);
    stroke(context, style, [x, TOP], [x, bottom]);
    context.setLineDash([]);
  }

  #y(value) {
    return this.vertical.place(fraction(this.range, value));
  }

  #hover(event) {
    if (!this.series?.length || !this.range) return;
    this.cursor = closestStep(this.series, this.scale.value(event.offsetX));
    this.nearest = this.#nearestTo(event.offsetY);
    this.draw();
    this.onRead(this.cursor, this.nearest);
  }

  #nearestTo(y) {
    let [found, distance] = [null, Infinity];
    for (const each of this.series) {
      const value = valueAt(each, this.cursor);
      if (value === null || Math.abs(this.#y(value) - y) >= distance) continue;
      [found, distance] = [each, Math.abs(this.#y(value) - y)];
    }
    return found;
  }

  #leave() {
    this.cursor = null;
    this.nearest = null;
    this.draw();
    this.onRead(null, null);
  }
}
