// Tables: elements of the page, numbers as text, and tables that a click on a head sorts.

"use strict";

const el = (tag, attributes, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) name in made ? made[name] = value : made.setAttribute(name, value);
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
};
const seconds = value => timeText(value * 1e6, value * 1e6);
const percent = value => (100 * value).toFixed(1) + " %";
const bytes = value => value >= 1048576 ? (value / 1048576).toFixed(2) + " MiB" : value >= 1024 ? (value / 1024).toFixed(1) + " KiB" : value + " B";

/** A number that sorts below all others if it is not known; and its text. */
const known = value => value === null || value === undefined ? -1 : value;
const optional = text => value => value < 0 ? "" : text(value);

/** A table; `columns` are [title, row -> value, value -> text]; a click on a title sorts by its column. */
function table(rows, columns, id) {
  const body = el("tbody");
  let by = null, down = true;
  const fill = () => {
    const sorted = by === null ? rows : [...rows].sort((a, b) => {
      const [x, y] = [columns[by][1](a), columns[by][1](b)];
      return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
    });
    body.replaceChildren(...sorted.map(row => el("tr", {}, ...columns.map(([, value, text]) =>
      el("td", { className: typeof value(row) === "string" ? "text" : "" }, (text || String)(value(row)))))));
  };
  const head = columns.map(([title, value], i) => el("th", { className: "sortable" + (rows.length && typeof value(rows[0]) === "string" ? " text" : ""),
    title: "sort", onclick: () => { down = by === i ? !down : true; by = i; fill(); } }, title));
  fill();
  return el("div", { className: "scroll" }, el("table", { id }, el("thead", {}, el("tr", {}, ...head)), body));
}

function legend(entries) {
  return el("div", { className: "legend" }, ...entries.map(([name, colour]) => el("span", {}, el("i", { style: `background:${colour}` }), name)));
}
