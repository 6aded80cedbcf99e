// What is looked at; kept in the address, so that a view can be shared and survives a reload.

const NUMBERS = new Set(["lag", "attempt", "layer", "step"]);
const NAMES = ["run", "metric", "role", "lag", "view", "attempt", "layer", "step"];

export function readSelection() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(NAMES.map((name) => [name, parse(name, query.get(name))]));
}

function parse(name, text) {
  if (text === null || !NUMBERS.has(name)) return text;
  return /^\d{1,15}$/.test(text) ? Number(text) : null;
}

export function writeSelection(selection) {
  const given = NAMES.filter((name) => selection[name] !== null && selection[name] !== undefined);
  const query = new URLSearchParams(given.map((name) => [name, selection[name]]));
  const address = `${location.pathname}?${query}`;
  if (address !== location.pathname + location.search) history.replaceState(null, "", address);
}
