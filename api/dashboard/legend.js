// The bar that tells which colour is which number.

import { colour } from "./colours.js";
import * as format from "./format.js";
import { fraction, ticks } from "./scale.js";
import { prepare, theme } from "./plot.js";

const BAR = 10;

export function drawLegend(canvas, range) {
  const { context, width } = prepare(canvas);
  if (!range) return;
  const colours = theme();
  const [from, to] = [10, width - 10];
  for (let x = from; x < to; x += 1) {
    context.fillStyle = `rgb(${colour((x - from) / (to - from)).slice(0, 3).join()})`;
    context.fillRect(x, 0, 1.5, BAR);
  }
  context.textBaseline = "top";
  context.textAlign = "center";
  context.fillStyle = colours.quiet;
  let free = 0;
  for (const tick of ticks(range, 4)) {
    const x = from + fraction(range, tick) * (to - from);
    const half = context.measureText(format.number(tick)).width / 2;
    const middle = Math.min(Math.max(x, half), width - half);
    if (middle - half < free) continue;
    free = middle + half + 8;
    context.fillRect(Math.round(x), BAR, 1, 4);
    context.fillText(format.number(tick), middle, BAR + 6);
  }
}
