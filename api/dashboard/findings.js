// The banner: what the detectors found, the gravest and newest first.

import * as format from "./format.js";
import { make } from "./dom.js";

const SHOWN = 3;
const GRAVITY = ["critical", "warning", "info"];

function item(finding, onOpen) {
  const open = make("button", { type: "button", class: "finding-open" });
  open.append(
    make("span", { class: "finding-message", text: finding.message }),
    make("span", {
      class: "finding-facts",
      text: `${finding.subject} · step ${format.step(finding.step)} · ${format.words(finding.rule)}`,
    }),
  );
  open.addEventListener("click", () => onOpen(finding));
  return make("li", { class: `finding ${finding.severity}` }, make("span", { class: "badge", text: finding.severity }), open);
}

// `onOpen(finding)` shows its layer and step.
export function showFindings(section, findings, onOpen) {
  section.hidden = findings.length === 0;
  if (section.hidden) return;
  const sorted = [...findings].sort(
    (a, b) => GRAVITY.indexOf(a.severity) - GRAVITY.indexOf(b.severity) || b.step - a.step,
  );
  const wasOpen = section.querySelector("details")?.open ?? false;
  section.replaceChildren(make("ul", {}, ...sorted.slice(0, SHOWN).map((each) => item(each, onOpen))));
  const rest = sorted.slice(SHOWN);
  if (!rest.length) return;
  const details = make("details", {}, make("summary", { text: `${rest.length} more` }));
  details.open = wasOpen;
  details.append(make("ul", {}, ...rest.map((each) => item(each, onOpen))));
  section.append(details);
}
