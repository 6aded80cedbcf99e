// Asks the API: relative addresses, so that a proxy's prefix does not matter, and each reply that did
// not change since the last time is the same object, so that a caller can compare with `===`.

export class Unauthorized extends Error {}
export class Refused extends Error {}

const TOKEN_KEY = "foreshock-token";
const MAX_KNOWN_REPLIES = 64;
const TURNING = /[\u202a-\u202e\u2066-\u2069]/g; // a name must not turn the words around it
const known = new Map(); // address -> { etag, data }

export function rememberToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token);
}

function headersFor(address) {
  const headers = { Accept: "application/json" };
  const token = sessionStorage.getItem(TOKEN_KEY);
  // A header may hold Latin-1 only; the server compares UTF-8 bytes.
  if (token) headers.Authorization = `Bearer ${asBytes(token)}`;
  if (known.has(address)) headers["If-None-Match"] = known.get(address).etag;
  return headers;
}

function asBytes(text) {
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
}

function withQuery(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return query ? `${path}?${query}` : path;
}

function remember(address, etag, data) {
  known.delete(address);
  known.set(address, { etag, data });
  if (known.size > MAX_KNOWN_REPLIES) known.delete(known.keys().next().value);
}

export async function get(path, parameters = {}) {
  const address = withQuery(path, parameters);
  const response = await fetch(address, { headers: headersFor(address), cache: "no-store" });
  // To its end also if it is empty, or Chromium counts the request as aborted.
  const text = (await response.text()).replace(TURNING, "\ufffd");
  if (response.status === 304) return known.get(address).data;
  if (response.status === 401) throw new Unauthorized();
  if (!response.ok) throw new Refused(problemIn(text) ?? `The server answered ${response.status}.`);
  const data = JSON.parse(text);
  const etag = response.headers.get("ETag");
  if (etag) remember(address, etag, data);
  return data;
}

function problemIn(text) {
  try {
    return JSON.parse(text).detail;
  } catch {
    return null;
  }
}
