// The part of the step axis that all charts show, and the strip of it that each checkpoint fills.

// For every step the interval half-way to its neighbours; where checkpoints are missing it is not
// stretched beyond the usual distance, so that the hole can be seen.
export function strips(steps) {
  const gaps = steps.slice(1).map((step, index) => step - steps[index]);
  const usual = median(gaps) || Math.max(1, steps[0] / 2 || 1);
  return steps.map((step, index) => ({
    from: step - Math.min(gaps[index - 1] ?? usual, usual) / 2,
    to: step + Math.min(gaps[index] ?? usual, usual) / 2,
  }));
}

function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor((sorted.length - 1) / 2)] : 0;
}

// Covers the heatmap's strips and every step of the training log.
export function domainOf(steps, otherSteps) {
  if (!steps.length && !otherSteps.length) return { low: 0, high: 1 };
  const edges = steps.length ? strips(steps) : [];
  const low = [...edges.slice(0, 1).map((edge) => edge.from), ...otherSteps.slice(0, 1)];
  const high = [...edges.slice(-1).map((edge) => edge.to), ...otherSteps.slice(-1)];
  return { low: Math.min(...low), high: Math.max(...high) };
}
