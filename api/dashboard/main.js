// Starts the page and keeps it current: asks every few seconds, only while somebody looks.

import { Unauthorized, rememberToken } from "./client.js";
import { byId } from "./dom.js";
import { Loop } from "./loop.js";
import { Page } from "./page.js";
import { showLocked } from "./state.js";

const INTERVAL_MILLISECONDS = 3000;

const page = new Page(() => loop.now());
const loop = new Loop(round, INTERVAL_MILLISECONDS);
let asked = false;

async function round() {
  try {
    await page.round();
    byId("token-form").hidden = true;
    byId("trouble").hidden = true;
  } catch (error) {
    if (error instanceof Unauthorized) askForToken();
    else complain(error);
  }
}

function askForToken() {
  showLocked();
  byId("token-form").hidden = false;
  byId("token-problem").textContent = asked ? "That is not the token." : "";
  byId("measurements").hidden = true;
}

function complain(error) {
  byId("trouble").textContent = `${error.message} Trying again every few seconds.`;
  byId("trouble").hidden = false;
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  rememberToken(byId("token").value);
  asked = true;
  loop.now();
});

loop.now();
