// Viridis: equally spaced for the eye, also in print and for the colour-blind.

const ANCHORS = [
  "440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725",
].map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));

function between(fraction) {
  const place = fraction * (ANCHORS.length - 1);
  const index = Math.min(Math.floor(place), ANCHORS.length - 2);
  const rest = place - index;
  return ANCHORS[index].map((low, channel) => low + rest * (ANCHORS[index + 1][channel] - low));
}

const TABLE = Array.from({ length: 256 }, (_, index) => [...between(index / 255).map(Math.round), 255]);

// Red, green, blue and opacity, each up to 255, for a fraction between 0 and 1.
export function colour(fraction) {
  return TABLE[Math.round(255 * Math.min(Math.max(fraction, 0), 1))];
}
