// From values to places, and the round numbers that label an axis.

const LOG_FROM_RATIO = 100;

export function linear(low, high, from, to) {
  const span = high - low || 1;
  return {
    low,
    high,
    place: (value) => from + ((value - low) / span) * (to - from),
    value: (place) => low + ((place - from) / (to - from)) * span,
  };
}

// How values spread: logarithmic when all are positive and far apart.
export function spread(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return null;
  const log = low > 0 && high / low >= LOG_FROM_RATIO;
  if (low === high) return { log: false, low: low - widen(low), high: high + widen(high) };
  return { log, low, high };
}

function widen(value) {
  return Math.abs(value) * 0.05 || 0.5;
}

// The same spread with a little air at both ends, for lines.
export function withAir({ log, low, high }) {
  if (log) return { log, low: low / 1.25, high: high * 1.25 };
  const air = (high - low) * 0.06;
  return { log, low: low >= 0 && low < air ? 0 : low - air, high: high + air };
}

export function fraction({ log, low, high }, value) {
  if (log) return Math.log(value / low) / Math.log(high / low);
  return (value - low) / (high - low);
}

export function ticks({ log, low, high }, count) {
  return log ? logTicks(low, high, count) : linearTicks(low, high, count);
}

function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 2.5, 5, 10].find((each) => each * power >= rough) * power;
  const found = [];
  for (let index = Math.ceil(low / unit - 1e-9); index * unit <= high + unit * 1e-9; index += 1) {
    found.push(Number((index * unit).toPrecision(12)));
  }
  return found;
}

function logTicks(low, high, count) {
  const decades = Math.log10(high / low);
  const multiples = decades <= count / 3 ? [1, 2, 5] : [1];
  const stride = Math.max(1, Math.ceil(decades / count));
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += stride) {
    for (const multiple of multiples) {
      const tick = Number((multiple * 10 ** power).toPrecision(12));
      if (tick >= low && tick <= high) found.push(tick);
    }
  }
  return found;
}

// Steps are whole numbers, so their ticks are too.
export function stepTicks(low, high, count) {
  return linearTicks(low, high, count).filter(Number.isInteger);
}
