// The two line charts: one layer's series, and the training loss on the same step axis.

import { byId, make } from "./dom.js";
import * as format from "./format.js";
import { Lines } from "./lines.js";
import { closestStep, medianOf, valueAt } from "./series.js";

export class Detail {
  constructor() {
    this.lines = new Lines(byId("lines"), { onRead: (step, nearest) => this.#read(step, nearest) });
    this.loss = new Lines(byId("loss"), { onRead: (step) => this.#read(step, null) });
  }

  // `view` is { domain, step, findings }: the shared axis, the selected step, what detectors found.
  show({ series, truncated }, loss, { metric, role, layer }, view) {
    this.view = view;
    this.units = series.filter((each) => each.unit);
    this.isMedian = this.units.length > 1 && this.units.length === series.length;
    this.series = this.isMedian ? [...series, medianOf(this.units)] : series;
    byId("lines-title").textContent = layer === null ? role : `Layer ${layer} · ${role}`;
    byId("lines-caption").textContent = caption(metric, series, truncated);
    byId("lines").setAttribute("aria-label", `${metric} of layer ${layer} over steps`);
    byId("lines-key").replaceChildren(...this.#key());
    const ofLayer = view.findings.filter((each) => each.layer === layer);
    this.lines.show(this.series, { ...view, marks: marks(ofLayer) });
    byId("loss-card").hidden = loss.length === 0;
    this.loss.show(loss, { ...view, marks: marks(view.findings) });
    this.#read(this.lines.cursor, this.lines.nearest);
  }

  // Follows the pointer of either chart; without one, speaks of the selected step.
  #read(step, nearest) {
    this.lines.point(step);
    this.loss.point(step);
    const at = step ?? this.view.step;
    const losses = this.loss.series.map((each) => readAt(each, closestStep([each], at)));
    byId("lines-reading").textContent = at === null ? "" : this.#reading(at, nearest).join("  ·  ");
    byId("loss-reading").textContent = at === null ? "" : [`step ${format.step(at)}`, ...losses].join("  ·  ");
  }

  #reading(step, nearest) {
    const values = this.units.map((each) => valueAt(each, step)).filter((value) => value !== null);
    const whole = this.series.filter((each) => !each.unit).map((each) => `${this.#wholeName()} ${readAt(each, step)}`);
    const range = [Math.min(...values), Math.max(...values)].map(format.number).join(" – ");
    return [
      `step ${format.step(step)}`,
      ...whole,
      ...(values.length > 1 ? [`${unitName(this.units)} ${range}`] : []),
      ...(nearest?.unit ? [`${nearest.unit} ${readAt(nearest, step)}`] : []),
    ];
  }

  #wholeName() {
    return this.isMedian ? "median" : "matrix";
  }

  #key() {
    const line = (kind, text) => make("span", { class: kind }, make("i"), text);
    const doubts = new Set(this.series.flatMap(({ reasons, values }) => reasons.filter((reason, at) => reason && values[at] !== null)));
    return [
      ...(this.series.some((each) => !each.unit) ? [line("bold", this.isMedian ? "median" : "whole matrix")] : []),
      ...(this.units.length ? [line("thin", `${this.units.length} ${unitName(this.units)}`)] : []),
      ...(doubts.size ? [line("hollow", [...doubts].map(format.words).join(", "))] : []),
    ];
  }
}

function marks(findings) {
  return [...new Set(findings.map((each) => each.step))].sort((a, b) => a - b);
}

function unitName(units) {
  return units.length ? `${units[0].unit.split(".")[0]}s` : "";
}

function readAt(series, step) {
  const index = series.steps.indexOf(step);
  if (index < 0) return "–";
  return format.reading(series.values[index], series.kinds[index], series.reasons[index]);
}

function caption(metric, series, truncated) {
  const parameters = [...new Set(series.map((each) => each.parameter))].slice(0, 2).join(", ");
  return `${metric} of ${parameters}${truncated ? "; only the first series are drawn" : ""}`;
}
