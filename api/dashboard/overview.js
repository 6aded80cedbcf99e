// The heatmap card: title, pickers, map, legend, tooltip.

import { byId } from "./dom.js";
import * as format from "./format.js";
import { Heatmap } from "./heatmap.js";
import { drawLegend } from "./legend.js";
import { onReshape } from "./plot.js";
import { showTooltip } from "./tooltip.js";

export class Overview {
  // `onSelect(layer, step)`.
  constructor(onSelect) {
    this.heatmap = new Heatmap(byId("heatmap"), {
      onSelect: (row, column) => onSelect(this.matrix.layers[row], this.matrix.steps[column]),
      onHover: (cell) => this.#hover(cell),
    });
    onReshape(byId("legend").parentElement, () => this.matrix && drawLegend(byId("legend"), this.heatmap.range));
  }

  // `described` is the metric's catalogue entry, if it has one.
  show(matrix, described, findings, domain) {
    Object.assign(this, { matrix, findings });
    byId("heatmap-title").textContent = `${matrix.metric} · ${matrix.role}`;
    byId("heatmap-caption").textContent = described?.description ?? "";
    byId("heatmap").setAttribute("aria-label", `${matrix.metric} by layer and step; arrow keys move between cells`);
    this.heatmap.show(matrix, domain, this.#marks());
    drawLegend(byId("legend"), this.heatmap.range);
  }

  select(layer, step) {
    const [row, column] = [this.matrix.layers.indexOf(layer), this.matrix.steps.indexOf(step)];
    this.heatmap.select(row, column);
    byId("announce").textContent = this.#words(row, column).join(", ");
  }

  #marks() {
    const { layers, steps } = this.matrix;
    return this.findings
      .map((finding) => [layers.indexOf(finding.layer), steps.indexOf(finding.step)])
      .filter(([row, column]) => row >= 0 && column >= 0);
  }

  #words(row, column) {
    const { layers, steps, values } = this.matrix;
    if (layers[row] === undefined || steps[column] === undefined) return [];
    const value = values[row][column];
    const found = this.findings.filter((each) => each.layer === layers[row] && each.step === steps[column]);
    return [
      value === null ? "no finite value" : format.number(value),
      `layer ${layers[row]} · step ${format.step(steps[column])}`,
      ...found.map((each) => each.message),
    ];
  }

  #hover(cell) {
    const words = cell && this.#words(cell.row, cell.column);
    if (words?.length) showTooltip(byId("tooltip"), cell, words);
    else byId("tooltip").hidden = true;
  }
}
