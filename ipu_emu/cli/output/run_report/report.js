// Report: fills the page from the numbers of the report and the spans of the timeline.

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

/** A part of a bar, in per cent of its width; its name is left out where there is no room for it. */
function part(name, share, colour, title) {
  const fits = share * 500 > name.length * 6.5;  // on the narrowest page
  return el("div", { style: `width:${100 * share}%;background:${colour}`, title }, fits ? name : "");
}

function legend(entries) {
  return el("div", { className: "legend" }, ...entries.map(([name, colour]) => el("span", {}, el("i", { style: `background:${colour}` }), name)));
}

function bars(instances, key, colours) {
  const longest = Math.max(...instances.map(one => Object.values(one[key]).reduce((a, b) => a + b, 0)), 1e-9);
  return instances.map(one => el("div", { className: "row" }, el("label", { title: one.label }, one.label), el("div", { className: "bar" },
    ...Object.entries(one[key]).sort((a, b) => b[1] - a[1]).map(([name, value]) => part(name, value / longest, colours[name], `${name}: ${seconds(value)}`)))));
}

function summary(data, colours) {
  const said = data.findings.map(one => el("div", { className: "finding" }, el("b", {}, one.text), ": ", one.advice));
  const missing = data.processes.reduce((sum, one) => sum + one.dropped_records, 0);
  return [
    ...data.notes.map(note => el("div", { className: "finding" }, "Note: " + note)),
    el("p", { className: "summary" }, "While steps run: ", data.summary),
    ...(said.length ? said : [el("div", { className: "fine" }, "No single cause costs more than a tenth of the time.")]),
    missing ? el("div", { className: "finding" }, `${missing} records are missing: raise IPU_EMU_TRACE_LIMIT`) : null,
    el("p", {}, `${seconds(data.wall_seconds)} of wall time, measured; instances: ${data.instances.length}.`),
    el("h3", {}, "While steps run"), ...bars(data.instances, "stepping_seconds_by_category", colours),
    el("h3", {}, "From start to end"), ...bars(data.instances, "seconds_by_category", colours),
    legend(Object.entries(colours)),
  ];
}

function times(data) {
  return ["seconds_by_category", "stepping_seconds_by_category"].flatMap((key, i) => {
    const names = [...new Set(data.instances.flatMap(one => Object.keys(one[key])))];
    return [el("h3", {}, i ? "From the first step to the last" : "From start to end"),
      table(names.map(name => ({ name })), [["category", row => row.name],
        ...data.instances.map(one => [one.label, row => one[key][row.name] || 0, seconds])], key)];
  });
}

function collectives(data) {
  if (!data.collectives.length) return ["No collectives between instances."];
  const last = row => row.instances[row.times_last_by_instance.indexOf(Math.max(...row.times_last_by_instance))];
  const mean = values => values.reduce((a, b) => a + b, 0) / values.length;
  return [...stragglers(data), el("h3", {}, "Collectives by size"), table(data.collectives, [["collective", row => row.name], ["size", row => row.bytes, bytes], ["calls", row => row.calls],
    ["moving, median", row => row.median_moving_seconds, seconds], ["waiting per call", row => mean(row.waiting_seconds_by_instance) / row.calls, seconds],
    ["bandwidth [GB/s]", row => row.bandwidth_gigabytes_per_second || 0, value => value.toFixed(3)],
    ["of the host's memory", row => known(row.share_of_memory_bandwidth), optional(percent)],
    ["last most often", row => "instance " + last(row)], ["transport", row => row.transport || ""],
    ["method", row => row.method || ""]], "collectives")];
}

function stragglers(data) {
  if (!data.stragglers.length) return [];
  return [el("h3", {}, "Who keeps the others waiting, while steps run"), table(data.stragglers, [["instance", row => row.label], ["host", row => row.host],
    ["works outside collectives", row => row.working_seconds, seconds], ["of the others' median", row => row.working_over_median_of_others, value => value.toFixed(2) + " x"],
    ["last", row => row.times_last], ["of collectives", row => row.collectives], ["late by", row => row.late_seconds, seconds],
    ["waits for others", row => row.waiting_seconds, seconds]], "stragglers")];
}

function ops(data) {
  const total = data.ops.reduce((sum, row) => sum + row.seconds, 0) || 1;
  return [table(data.ops, [["op", row => row.name], ["output", row => row.output], ["category", row => row.category], ["calls", row => row.calls],
    ["time", row => row.seconds, seconds], ["share", row => row.seconds / total, percent], ["a call", row => row.seconds / row.calls, seconds],
    ["modelled on an IPU", row => known(row.modelled_seconds), optional(seconds)], ["cycles", row => known(row.modelled_cycles), optional(String)],
    ["FLOPs", row => known(row.flops), optional(value => value.toLocaleString("en"))], ["bytes", row => known(row.bytes), optional(bytes)]], "ops")];
}

function settings(data) {
  return data.processes.map(one => el("div", {}, el("h3", {}, `${one.label} on ${one.host}`), el("table", {}, ...Object.entries(one).map(
    ([name, value]) => el("tr", {}, el("td", {}, name), el("td", { className: "wrap" }, typeof value === "object" ? JSON.stringify(value) : String(value)))))));
}

async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

async function lanesOf(spans) {
  const lanes = [];
  for (const lane of spans.lanes) {
    const buffer = await unpacked(lane.data), n = lane.count;
    const begin = new Float64Array(buffer, 0, n), value = new Int32Array(buffer, 8 * n, n), length = new Float32Array(buffer, 12 * n, n);
    const name = new Uint32Array(buffer, 16 * n, n), depth = new Uint8Array(buffer, 20 * n, n);
    let end = 0, rows = 1;
    for (let i = 0; i < n; i++) { end = Math.max(end, begin[i] + length[i]); rows = Math.max(rows, depth[i] + 1); }
    lanes.push({ label: lane.label, process: lane.process, thread: lane.thread, begin, value, length, name, depth, end, rows });
  }
  return lanes;
}

function selection(found) {
  if (!found) return [];
  if (found.range) return [el("div", {}, el("h3", {}, `${timeText(found.range[1] - found.range[0], found.range[1] - found.range[0])} selected`),
    table(found.totals.slice(0, 30).map(([name, value]) => ({ name, value })), [["span", row => row.name], ["time", row => row.value / 1e6, seconds]], "totals"))];
  const rows = { ...(found.args || {}), category: found.category, where: `${found.process}, ${found.label}`, begin: timeText(found.begin, 1e6),
    length: timeText(found.length, found.length), value: found.value };
  return [el("div", {}, el("h3", {}, found.name), el("table", { id: "details" }, ...Object.entries(rows).map(([name, value]) =>
    el("tr", {}, el("td", {}, name), el("td", { className: "wrap" }, typeof value === "object" ? JSON.stringify(value) : String(value)))))),
  found.together.length ? el("div", {}, el("h3", {}, "The same collective elsewhere"), table(found.together, [
    ["where", one => one.lane.process], ["begin", one => one.lane.begin[one.index] - found.begin, value => timeText(value, 1e3)],
    ["length", one => one.lane.length[one.index], value => timeText(value, value)]], "together")) : null];
}

async function main() {
  const data = JSON.parse(document.getElementById("data").textContent), spans = JSON.parse(document.getElementById("spans").textContent);
  const names = [...new Set(data.instances.flatMap(one => Object.keys(one.seconds_by_category)))].sort();
  const colours = Object.fromEntries(names.map(name => [name, categoryColour(name)]));
  const fill = (id, children) => document.getElementById(id).replaceChildren(...children.filter(child => child));
  fill("summary", summary(data, colours)); fill("times", times(data)); fill("collective", collectives(data));
  fill("op", ops(data)); fill("memory", memories(data)); fill("program", programs(data)); fill("pipeline", pipeline(data)); fill("settings", settings(data));
  const canvas = document.getElementById("timeline");
  const timeline = new Timeline(canvas, await lanesOf(spans), spans.names, found => document.getElementById("selection").replaceChildren(...selection(found).filter(Boolean)), spans.flows);
  fill("legend", [legend(timeline.categories)]);
  const search = document.getElementById("search"), hits = document.getElementById("hits");
  let next = 0;
  search.addEventListener("input", () => { next = 0; const { count } = timeline.search(search.value, 1); hits.textContent = search.value ? `${count} spans` : ""; });
  search.addEventListener("keydown", event => {
    if (event.key !== "Enter") return;
    const { found } = timeline.search(search.value, 1000);
    if (!found.length) return;
    const one = found[next++ % found.length], begin = one.lane.begin[one.index], length = one.lane.length[one.index];
    timeline.show(begin - 5 * length, begin + 6 * length); timeline.select(one);
  });
  document.getElementById("whole").onclick = () => timeline.show(0, timeline.end);
  for (const button of document.querySelectorAll("nav button")) button.onclick = () => {
    for (const other of document.querySelectorAll("nav button")) {
      other.setAttribute("aria-selected", String(other === button));
      document.getElementById(other.dataset.tab).hidden = other !== button;
    }
    timeline.draw();
  };
  window.timeline = timeline;
  document.body.dataset.ready = "yes";
}

main();
