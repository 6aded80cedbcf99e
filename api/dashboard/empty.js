// What to read, and to do, while there is nothing to draw.

import { byId } from "./dom.js";
import * as format from "./format.js";

export function showEmpty(message) {
  byId("empty").hidden = message === null;
  if (message === null) return;
  byId("empty-title").textContent = message.title;
  byId("empty-text").textContent = message.text;
  byId("empty-command").hidden = !message.command;
  byId("empty-command").textContent = message.command ?? "";
}

export const NO_RUN = {
  title: "No run yet",
  text: "Point Foreshock at the directory that the training job saves its checkpoints in:",
  command: "foreshock watch /path/to/checkpoints",
};

export function nothingMeasured({ path }, watched, counts) {
  const place = `${watched ? "Watching" : "Nobody watches"} ${path}`;
  if (counts.measured || counts.partial) {
    return { title: "The first checkpoint is the base", text: `Differences appear with the next one. ${place}.` };
  }
  const seen = Object.entries(counts).filter(([, count]) => count);
  const told = seen.map(([state, count]) => `${format.step(count)} ${state}`).join(", ");
  return { title: "No checkpoint measured yet", text: `${place}; ${told || "nothing was saved there"} so far.` };
}
