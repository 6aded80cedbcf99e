// Elements without markup: whatever a name holds, it becomes text.

export function make(tag, { text, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

// Fills a <select> with { value, label } pairs, and leaves it alone when nothing changed.
export function fillSelect(select, options, chosen) {
  const wanted = JSON.stringify(options);
  if (select.dataset.options !== wanted) {
    select.replaceChildren(...options.map(({ value, label }) => make("option", { value, text: label })));
    select.dataset.options = wanted;
  }
  select.value = chosen;
  select.disabled = options.length < 2;
}
