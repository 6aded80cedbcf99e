// What every chart shares: a canvas at the screen's own resolution, the theme's colours, and one step
// axis, so that the same step lies at the same place in all of them.

import * as format from "./format.js";
import { linear, stepTicks, ticks } from "./scale.js";

const NARROW = 520;

// The drawing area in CSS pixels; `left` and `right` bound the plot itself.
export function prepare(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `${width < NARROW ? 11 : 12}px ${getComputedStyle(document.body).fontFamily}`;
  return { context, width, height, left: width < NARROW ? 40 : 56, right: width - 14 };
}

export function theme() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "quiet", "line", "paper", "accent", "thread", "warning"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

export function stepScale(domain, area) {
  return linear(domain.low, domain.high, area.left, area.right);
}

// Labels under a plot and, unless cells fill it, faint lines through it.
export function drawStepAxis({ context, left, right, top, bottom }, scale, colours, { grid = true } = {}) {
  const marks = stepTicks(scale.low, scale.high, Math.max(2, Math.floor((right - left) / 90)));
  context.textBaseline = "top";
  context.textAlign = "center";
  for (const mark of marks) {
    const x = Math.round(scale.place(mark)) + 0.5;
    if (x < left || x > right) continue;
    if (grid) stroke(context, colours.line, [x, top], [x, bottom]);
    const text = format.step(mark);
    const half = context.measureText(text).width / 2;
    context.fillStyle = colours.quiet;
    context.fillText(text, Math.min(Math.max(x, left + half - 8), right + 12 - half), bottom + 7);
  }
}

// `place` turns a value into a height on the canvas.
export function drawValueAxis({ context, left, right, top, bottom }, range, place, colours) {
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of ticks(range, Math.max(3, Math.floor((bottom - top) / 42)))) {
    const y = Math.round(place(tick)) + 0.5;
    if (y < top || y > bottom + 1) continue;
    stroke(context, colours.line, [left, y], [right, y]);
    context.fillStyle = colours.quiet;
    context.fillText(format.number(tick), left - 10, y);
  }
}

export function stroke(context, style, ...points) {
  context.strokeStyle = style;
  context.lineWidth = 1;
  context.beginPath();
  points.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}

// Runs `draw` when the element's width, or the colour scheme, changes.
export function onReshape(element, draw) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    if (entry.contentRect.width === width) return;
    width = entry.contentRect.width;
    requestAnimationFrame(draw);
  }).observe(element);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
