// Questions about series as the API gives them.

export function valueAt(series, step) {
  const index = series.steps.indexOf(step);
  return index < 0 ? null : series.values[index];
}

// The median of several series at every step where one has a number; drawn where no whole matrix is.
export function medianOf(units) {
  const steps = [...new Set(units.flatMap((each) => each.steps))].sort((a, b) => a - b);
  const values = steps.map((step) => median(units.map((each) => valueAt(each, step))));
  return { ...units[0], unit: "", steps, values, reasons: steps.map(() => ""), kinds: values.map(kindOf) };
}

function median(values) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  if (!sorted.length) return null;
  const middle = (sorted.length - 1) / 2;
  return (sorted[Math.floor(middle)] + sorted[Math.ceil(middle)]) / 2;
}

const kindOf = (value) => (value === null ? "undefined" : "finite");

export function closestStep(series, wanted) {
  let best = null;
  for (const step of series.flatMap((each) => each.steps)) {
    if (best === null || Math.abs(step - wanted) < Math.abs(best - wanted)) best = step;
  }
  return best;
}
