// One series as a line: a gap where there is no number, a hollow point where a reason casts doubt.

// `place` turns a step and a value into [x, y].
export function drawCurve(context, series, place, { style, width, paper }) {
  context.strokeStyle = style;
  context.lineWidth = width;
  context.lineJoin = "round";
  context.beginPath();
  let drawing = false;
  series.steps.forEach((step, index) => {
    const value = series.values[index];
    if (value !== null) context[drawing ? "lineTo" : "moveTo"](...place(step, value));
    drawing = value !== null;
  });
  context.stroke();
  drawPoints(context, series, place, { style, width, paper });
}

// Points without neighbours would not show as a line, so they are drawn too.
function drawPoints(context, { steps, values, reasons }, place, { style, width, paper }) {
  const missing = (index) => (values[index] ?? null) === null;
  context.lineWidth = Math.min(width, 1.25);
  values.forEach((value, index) => {
    const doubtful = reasons[index] !== "";
    const alone = missing(index - 1) && missing(index + 1);
    if (value === null || !(doubtful || alone)) return;
    context.beginPath();
    context.arc(...place(steps[index], value), width + 1, 0, 2 * Math.PI);
    context.fillStyle = doubtful ? paper : style;
    context.fill();
    context.stroke();
  });
}
