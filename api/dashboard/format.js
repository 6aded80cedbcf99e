// Numbers, steps and times as people read them.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNDEFINED_WORDS = { nan: "NaN", "+inf": "+∞", "-inf": "−∞", undefined: "undefined" };

export function step(value) {
  return grouped.format(value).replaceAll(",", "\u202f");
}

export function number(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-3 || size >= 1e6) return minus(Number(value.toPrecision(3)).toExponential().replace("e+", "e"));
  return minus(String(Number(value.toPrecision(4))));
}

export function reading(value, kind, reason) {
  const text = value === null ? (UNDEFINED_WORDS[kind] ?? kind) : number(value);
  return reason ? `${text} (${words(reason)})` : text;
}

export function words(identifier) {
  return identifier.replaceAll("_", " ");
}

export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log10(Math.max(count, 1)) / 3), units.length - 1);
  return `${number(Number((count / 1000 ** power).toPrecision(3)))} ${units[power]}`;
}

export function seconds(count) {
  if (count < 60) return `${number(Number(count.toPrecision(2)))} s`;
  if (count < 3600) return `${Math.round(count / 60)} min`;
  if (count < 172800) return `${Math.round(count / 3600)} h`;
  return `${Math.round(count / 86400)} days`;
}

export function ago(time, now = Date.now()) {
  const age = (now - Date.parse(time)) / 1000;
  return age < 2 ? "just now" : `${seconds(Math.round(age))} ago`;
}

function minus(text) {
  return text.replaceAll("-", "−");
}
