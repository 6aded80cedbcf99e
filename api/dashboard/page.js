// One round: ask for what is selected, and draw what changed.

import { get } from "./client.js";
import { showCheckpoints } from "./checkpoints.js";
import { Controls, unitsAndStatistic } from "./controls.js";
import { Detail } from "./detail.js";
import { byId, fillSelect } from "./dom.js";
import { domainOf } from "./domain.js";
import { NO_RUN, nothingMeasured, showEmpty } from "./empty.js";
import { showFindings } from "./findings.js";
import { Overview } from "./overview.js";
import { readSelection, writeSelection } from "./selection.js";
import { isWatched, showState } from "./state.js";

const LOSS = "training.loss";
const MAX_POINTS = 11000; // the server shares out fewer where there are many series

export class Page {
  #drawn = [];
  #choices = 0;

  // `onChoice()` is called when the reader picked something else.
  constructor(onChoice) {
    this.onChoice = onChoice;
    this.selection = readSelection();
    const choose = (changes) => this.#choose(changes);
    this.controls = new Controls(choose);
    this.overview = new Overview((layer, step) => this.#select(layer, step));
    this.detail = new Detail();
    byId("run").addEventListener("change", (event) =>
      choose({ run: event.target.value, attempt: null, layer: null, step: null }),
    );
  }

  async round() {
    const [{ items: runs }, { components, version }] = await Promise.all([get("runs"), get("status")]);
    byId("version").textContent = `Foreshock ${version}`;
    const run = runs.find((each) => each.name === this.selection.run) ?? runs.find((each) => isWatched(each, components)) ?? runs[0];
    fillSelect(byId("run"), runs.map(({ name }) => ({ value: name, label: name })), run?.name);
    showState(run, components);
    if (!run) return this.#nothing(NO_RUN);
    this.selection.run = run.name;
    document.title = `${run.name} · Foreshock`;
    return this.#showRun(run, `runs/id:${run.id}`, isWatched(run, components));
  }

  async #showRun(run, at, watched) {
    const choices = this.#choices;
    const [{ items: facets }, checkpoints, { items: findings }, { items: metrics }] = await Promise.all(
      [`${at}/facets`, `${at}/checkpoints`, `${at}/findings`, "metrics"].map((path) => get(path)),
    );
    if (choices !== this.#choices) return;
    showFindings(byId("findings"), findings, (finding) => this.#open(finding));
    showCheckpoints(byId("checkpoints"), checkpoints);
    if (!this.controls.settle(this.selection, facets)) {
      this.#nothing(nothingMeasured(run, watched, checkpoints.counts));
      return;
    }
    const shown = { ...this.selection, attempt: this.#attemptOf(run) };
    const { metric, role, lag, attempt } = shown;
    const matrix = await get(`${at}/heatmap`, { metric, role, lag, attempt, ...unitsAndStatistic(shown.view) });
    Object.assign(shown, cellOf(shown, matrix, findings));
    const [lines, loss] = await askSeries(run, shown, facets);
    if (choices !== this.#choices) return; // the next round shows the new choice
    this.#draw(shown, { matrix, lines, loss, findings, described: metrics.find((each) => each.name === metric) });
  }

  #attemptOf({ attempts }) {
    const known = attempts.map((each) => each.ordinal);
    const attempt = known.includes(this.selection.attempt) ? this.selection.attempt : known.at(-1);
    this.controls.attempts(attempts, attempt);
    return attempt;
  }

  #draw(shown, { matrix, lines, loss, described, findings }) {
    showEmpty(null);
    byId("measurements").hidden = false;
    writeSelection(this.selection);
    const drawing = [matrix, lines, loss, findings, described, JSON.stringify(shown)];
    if (drawing.every((each, index) => each === this.#drawn[index])) return;
    this.#drawn = drawing;
    const ofAttempt = findings.filter((each) => each.attempt === shown.attempt);
    const domain = domainOf(matrix.steps, loss.series.flatMap((each) => each.steps).sort((a, b) => a - b));
    this.overview.show(matrix, described, ofAttempt, domain);
    this.overview.select(shown.layer, shown.step);
    this.detail.show(lines, loss.series, shown, { domain, step: shown.step, findings: ofAttempt });
  }

  #choose(changes) {
    Object.assign(this.selection, changes);
    this.#choices += 1;
    this.onChoice();
  }

  #select(layer, step) {
    this.overview.select(layer, step);
    const newest = step === this.overview.matrix.steps.at(-1);
    this.#choose({ layer, step: newest ? null : step });
  }

  #open({ layer, step, attempt }) {
    this.#choose({ step, attempt, ...(layer === null ? {} : { layer }) });
  }

  #nothing(message) {
    this.#drawn = [];
    byId("measurements").hidden = true;
    showEmpty(message);
  }
}

// Without a choice: the layer of the newest finding, and the newest step, also when it moves on.
function cellOf({ layer, step }, { layers, steps }, findings) {
  const suspicious = findings.find((each) => layers.includes(each.layer));
  return {
    layer: layers.includes(layer) ? layer : (suspicious?.layer ?? layers[0] ?? null),
    step: steps.includes(step) ? step : (steps.at(-1) ?? null),
  };
}

function askSeries(run, { metric, role, lag, layer, attempt }, facets) {
  const common = { run: `id:${run.id}`, attempt };
  const hasLoss = facets.some((each) => each.metric === LOSS);
  return Promise.all([
    get(`metrics/${encodeURIComponent(metric)}`, { ...common, role, lag, layer, max_points: MAX_POINTS }),
    hasLoss ? get(`metrics/${LOSS}`, common) : NO_SERIES,
  ]);
}

const NO_SERIES = { series: [] };
