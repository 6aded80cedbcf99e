// The header's words: how far the run is, and whether anybody is watching it.

import { byId } from "./dom.js";
import * as format from "./format.js";

export function showState(run, components) {
  const { level, text } = run ? watching(components.find((each) => each.detail.run === run.name)) : idle();
  byId("state").className = `state ${level}`;
  byId("state-text").textContent = text;
  byId("last").textContent = run ? lastCheckpoint(run) : "";
}

// Before anybody told the token.
export function showLocked() {
  byId("state").className = "state idle";
  byId("state-text").textContent = "locked";
}

export function isWatched(run, components) {
  return components.some(({ detail, fresh, healthy }) => detail.run === run.name && fresh && healthy);
}

function lastCheckpoint({ analyzed_step: step, analyzed_at: time }) {
  if (step === null) return "no checkpoint measured yet";
  return `step ${format.step(step)}${time ? `, ${format.ago(time)}` : ""}`;
}

const idle = () => ({ level: "idle", text: "not watched" });

function watching(watcher) {
  if (!watcher) return idle();
  const { detail, fresh, healthy, updated_at: time } = watcher;
  if (!fresh) return { level: "bad", text: `the watcher was last heard of ${format.ago(time)}` };
  if (!healthy) return { level: "bad", text: String(detail.last_error || "the watcher is in trouble") };
  return { level: "good", text: detail.backlog ? `watching, ${detail.backlog} waiting` : "watching" };
}
