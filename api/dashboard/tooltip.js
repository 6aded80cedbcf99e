// The little card beside the pointer.

import { make } from "./dom.js";

const AWAY = 14;

export function showTooltip(tooltip, place, [title, ...lines]) {
  tooltip.replaceChildren(make("b", { text: title }), ...lines.map((text) => make("div", { text })));
  tooltip.hidden = false;
  const room = tooltip.parentElement.clientWidth;
  const left = place.x + AWAY + tooltip.offsetWidth > room ? place.x - AWAY - tooltip.offsetWidth : place.x + AWAY;
  const top = place.y - tooltip.offsetHeight - AWAY;
  tooltip.style.left = `${Math.max(0, left)}px`;
  tooltip.style.top = `${top < -40 ? place.y + AWAY : top}px`;
}
