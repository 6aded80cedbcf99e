// The pickers: only combinations that the run has, and a sensible first choice.

import { byId, fillSelect } from "./dom.js";
import * as format from "./format.js";

// The earliest signal first; the first one that the run has is shown.
const PREFERRED = [
  ["qk_first_order.effective_rank", "qk"],
  ["update.effective_rank", "q"],
  ["router.conditioning", "router"],
];
const OUTSIDE_LAYERS = 0;
const OVER = { median: "median over", min: "lowest of", mean: "mean over", max: "highest of" };

export class Controls {
  // `onChange(changes)` with the chosen values.
  constructor(onChange) {
    for (const name of ["metric", "role", "view"]) {
      byId(name).addEventListener("change", (event) => onChange({ [name]: event.target.value }));
    }
    for (const name of ["lag", "attempt"]) {
      byId(name).addEventListener("change", (event) => onChange({ [name]: Number(event.target.value) }));
    }
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
  }

  // Puts the selection right where the run lacks what it asks for; returns whether there is anything.
  settle(selection, facets) {
    const maps = facets.filter((each) => each.layers !== OUTSIDE_LAYERS);
    if (!maps.length) return false;
    if (!maps.some((each) => each.metric === selection.metric)) Object.assign(selection, firstChoice(maps));
    const ofMetric = maps.filter((each) => each.metric === selection.metric);
    const roles = distinct(ofMetric, "role");
    if (!roles.includes(selection.role)) selection.role = roles[0];
    const ofRole = ofMetric.filter((each) => each.role === selection.role);
    const lags = distinct(ofRole, "lag").sort((a, b) => a - b);
    if (!lags.includes(selection.lag)) selection.lag = lags[0];
    const views = viewsOf(ofRole.find((each) => each.lag === selection.lag));
    if (!views.some(({ value }) => value === selection.view)) selection.view = views[0].value;
    fillSelect(byId("metric"), named(distinct(maps, "metric")), selection.metric);
    fillSelect(byId("role"), named(roles), selection.role);
    fillSelect(byId("lag"), lags.map((lag) => ({ value: String(lag), label: lagName(lag) })), String(selection.lag));
    fillSelect(byId("view"), views, selection.view);
    return true;
  }

  attempts(attempts, chosen) {
    byId("attempt-label").hidden = attempts.length < 2;
    const options = attempts.map(({ ordinal, first_step: first }) => ({
      value: String(ordinal),
      label: `${ordinal}, from step ${format.step(first)}`,
    }));
    fillSelect(byId("attempt"), options, String(chosen));
  }
}

// A view is "head.median", "whole.median" …: which units are taken together, and how.
export function unitsAndStatistic(view) {
  const [units, statistic] = view.split(".");
  return { units, statistic };
}

function viewsOf({ has_whole: whole, has_heads: heads, has_experts: experts }) {
  const over = (units) =>
    Object.entries(OVER).map(([statistic, words]) => ({ value: `${units}.${statistic}`, label: `${words} ${units}s` }));
  const views = [
    ...(heads ? over("head") : []),
    ...(experts ? over("expert") : []),
    ...(whole ? [{ value: "whole.median", label: "whole matrix" }] : []),
  ];
  return views.length ? views : [{ value: "any.median", label: "median" }];
}

function firstChoice(maps) {
  for (const [metric, role] of PREFERRED) {
    if (maps.some((each) => each.metric === metric)) return { metric, role, lag: null };
  }
  return { metric: maps[0].metric, role: maps[0].role, lag: null };
}

const distinct = (facets, name) => [...new Set(facets.map((each) => each[name]))];
const named = (names) => names.map((name) => ({ value: name, label: name }));

function lagName(lag) {
  if (lag === 0) return "none";
  return lag === 1 ? "1 checkpoint" : `${lag} checkpoints`;
}
