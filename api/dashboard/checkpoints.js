// The ledger: what became of every checkpoint, and why.

import * as format from "./format.js";
import { make } from "./dom.js";

const HEADINGS = ["Step", "State", "Reason", "Format", "Read", "Took", "Settled"];

function row(checkpoint, severalAttempts) {
  const step = format.step(checkpoint.step) + (severalAttempts ? ` · attempt ${checkpoint.attempt}` : "");
  const cells = [
    make("td", { class: "number", text: step }),
    make("td", {}, make("span", { class: `pill ${checkpoint.state}`, text: checkpoint.state })),
    make("td", { class: "reason", text: checkpoint.reason ? format.words(checkpoint.reason) : "" }),
    make("td", { text: checkpoint.format }),
    make("td", { class: "number", text: checkpoint.bytes_read ? format.bytes(checkpoint.bytes_read) : "" }),
    make("td", { class: "number", text: checkpoint.seconds ? format.seconds(checkpoint.seconds) : "" }),
    make("td", { class: "number", text: checkpoint.settled_at ? format.ago(checkpoint.settled_at) : "" }),
  ];
  return make("tr", { title: checkpoint.path }, ...cells);
}

export function showCheckpoints(details, { items, counts }) {
  details.hidden = items.length === 0;
  const told = Object.entries(counts).filter(([, count]) => count);
  details.querySelector("summary span").textContent = told.map(([state, count]) => `${count} ${state}`).join(" · ");
  const severalAttempts = new Set(items.map((each) => each.attempt)).size > 1;
  const head = make("tr", {}, ...HEADINGS.map((text) => make("th", { scope: "col", text })));
  const body = make("tbody", {}, ...items.map((each) => row(each, severalAttempts)));
  details.querySelector("table").replaceChildren(make("thead", {}, head), body);
}
