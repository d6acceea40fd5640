// Report: fills the page from the numbers of the report and the spans of the timeline.

"use strict";

function summary(data) {
  const said = data.findings.map(one => el("div", { className: "finding" }, el("b", {}, one.text), ": ", one.advice));
  const missing = data.processes.reduce((sum, one) => sum + one.dropped_records, 0);
  return [
    ...data.notes.map(note => el("div", { className: "finding" }, "Note: " + note)),
    el("p", { className: "summary" }, "While steps run: ", data.summary),
    ...(said.length || missing || data.notes.length ? said : [el("div", { className: "fine" }, "No single cause costs more than a tenth of the time.")]),
    missing ? el("div", { className: "finding" }, `${missing} records are missing: raise IPU_EMU_TRACE_LIMIT`) : null,
    charts.missing ? el("p", { id: "missing-charts" }, charts.missing) : null,
    el("p", {}, `${seconds(data.wall_seconds)} of wall time, measured; instances: ${data.instances.length}.`),
    data.weights ? el("p", { title: "digest of the trained weights" }, `weights ${data.weights}`) : null,
    ...charted("While steps run", "stepping_seconds_by_category"), ...charted("From start to end", "seconds_by_category"),
  ];
}

function times(data) {
  return ["seconds_by_category", "stepping_seconds_by_category"].flatMap((key, i) => {
    const names = [...new Set(data.instances.flatMap(one => Object.keys(one[key])))];
    return [el("h3", {}, i ? "From the first step to the last" : "From start to end"), chart(key, `times-${key}`),
      table(names.map(name => ({ name })), [["category", row => row.name],
        ...data.instances.map(one => [one.label, row => one[key][row.name] || 0, seconds])], key)];
  });
}

function collectives(data) {
  if (!data.collectives.length) return ["No collectives between instances."];
  const last = row => row.instances[row.times_last_by_instance.indexOf(Math.max(...row.times_last_by_instance))];
  const mean = values => values.reduce((a, b) => a + b, 0) / values.length;
  return [...stragglers(data), el("h3", {}, "Collectives by size"), chart("bandwidth"), table(data.collectives, [["collective", row => row.name], ["size", row => row.bytes, bytes], ["calls", row => row.calls],
    ["moving, median", row => row.median_moving_seconds, seconds], ["waiting per call", row => mean(row.waiting_seconds_by_instance) / row.calls, seconds],
    ["bandwidth [GB/s]", row => row.bandwidth_gigabytes_per_second || 0, value => value.toFixed(3)],
    ["of the limit", row => known(row.share_of_limit), optional(percent)], ["limit", limit],
    ["last most often", row => "instance " + last(row)], ["transport", row => row.transport || ""],
    ["method", row => row.method || ""]], "collectives")];
}

function limit(row) {
  const rate = row.limit_gigabytes_per_second;
  return rate ? `${row.limit}${row.limit_interface ? " " + row.limit_interface : ""}, ${rate.toFixed(3)} GB/s` : row.limit;
}

function stragglers(data) {
  if (!data.stragglers.length) return [];
  return [el("h3", {}, "Who keeps the others waiting, while steps run"), chart("stragglers"), table(data.stragglers, [["instance", row => row.label], ["host", row => row.host],
    ["works outside collectives", row => row.working_seconds, seconds], ["of the others' median", row => row.working_over_median_of_others, value => value.toFixed(2) + " x"],
    ["last", row => row.times_last], ["of collectives", row => row.collectives], ["late by", row => row.late_seconds, seconds],
    ["waits for others", row => row.waiting_seconds, seconds]], "stragglers")];
}

function ops(data) {
  const total = data.ops.reduce((sum, row) => sum + row.seconds, 0) || 1;
  const together = data.ops.some(row => row.timed_together);
  return [together ? el("p", {}, "Short instructions that follow each other are timed together, and share that time as they did in the first micro-batches.") : null,
    table(data.ops, [["op", row => row.name], ["output", row => row.output], ["category", row => row.category], ["calls", row => row.calls],
    ["time", row => row.seconds, seconds], ["share", row => row.seconds / total, percent], ["a call", row => row.seconds / row.calls, seconds],
    ["modelled on an IPU", row => known(row.modelled_seconds), optional(seconds)], ["cycles", row => known(row.modelled_cycles), optional(String)],
    ["FLOPs", row => known(row.flops), optional(value => value.toLocaleString("en"))], ["bytes", row => known(row.bytes), optional(bytes)]], "ops")];
}

function settings(data) {
  return data.processes.map(one => el("div", {}, el("h3", {}, `${one.label} on ${one.host}`), el("table", {}, ...Object.entries(one).map(
    ([name, value]) => el("tr", {}, el("td", {}, name), el("td", { className: "wrap" }, typeof value === "object" ? JSON.stringify(value) : String(value)))))));
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
  const fill = (id, children) => document.getElementById(id).replaceChildren(...children.filter(child => child));
  Object.assign(charts, JSON.parse(document.getElementById("charts").textContent));
  fill("summary", summary(data)); fill("times", times(data)); fill("collective", collectives(data));
  fill("op", ops(data)); fill("memory", memories(data)); fill("program", [...programs(data), ...checkpoints(data)]); fill("pipeline", pipeline(data)); fill("settings", settings(data));
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
  const buttons = [...document.querySelectorAll("nav button")], address = button => "#" + button.textContent.toLowerCase();
  const open = button => {
    for (const other of buttons) {
      other.setAttribute("aria-selected", String(other === button));
      document.getElementById(other.dataset.tab).hidden = other !== button;
    }
    timeline.draw();
    return drawCharts(document.getElementById(button.dataset.tab));
  };
  const addressed = () => buttons.find(button => address(button) === location.hash) || buttons[0];
  for (const button of buttons) button.onclick = () => { history.pushState(null, "", address(button)); open(button); };
  window.onhashchange = window.onpopstate = () => open(addressed());
  window.timeline = timeline;
  await open(addressed());
  document.body.dataset.ready = "yes";
}

main();
