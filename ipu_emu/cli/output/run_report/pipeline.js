// Pipeline: how long stages and IPUs work, and the schedule of a step with its bubbles.

"use strict";

const TASKS = { "forward": "#4e79a7", "backward": "#f28e2b", "forward+backward": "#59a14f", "recompute": "#b07aa1", "weight update": "#9c755f",
  "copies between IPUs": "#76b7b2", "collectives": "#e15759", "compute": "#4e79a7", "host I/O": "#edc948", "load": "#edc948", "store": "#ff9da7" };
const OTHER_TASK = "#8c8c8c", BUBBLE = "#e4e7eb";
const taskColour = task => TASKS[task] || OTHER_TASK;

/** A row for each IPU of a replica, a box for each task with the number of its micro-batch; what is grey is bubble. */
function schedulePicture(pipeline) {
  const width = 1000, left = 60, row = 26, ipus = [...new Set(pipeline.spans.map(([ipu]) => ipu))].sort((a, b) => a - b);
  const height = ipus.length * row + 24, x = time => left + time / pipeline.seconds * (width - left - 4), total = pipeline.seconds * 1e6;
  const rows = ipus.flatMap((ipu, number) => [svg("text", { x: 4, y: number * row + 16, "font-size": 12 }, `IPU ${ipu}`),
    svg("rect", { class: "bubble", x: x(0), y: number * row + 2, width: x(pipeline.seconds) - x(0), height: row - 4, fill: BUBBLE })]);
  const boxes = pipeline.spans.map(([ipu, start, length, name, task]) => {
    const y = ipus.indexOf(ipu) * row + 2, wide = Math.max(x(start + length) - x(start), 0.5), batch = /micro-batch (\d+)/.exec(name);
    const box = svg("rect", { class: "task", x: x(start), y, width: wide, height: row - 4, fill: taskColour(task), stroke: "#fff", "stroke-width": wide > 3 ? 1 : 0 },
      svg("title", {}, `${name}: ${timeText(length * 1e6, length * 1e6)}`));
    return batch && wide > 16 ? [box, svg("text", { x: x(start) + wide / 2, y: y + 15, "font-size": 11, fill: "#fff", "text-anchor": "middle" }, batch[1])] : [box];
  });
  const step = roundStep(total, 8), ticks = [];
  for (let mark = 0; mark <= total * 1.0001; mark += step)
    ticks.push(svg("text", { x: x(mark / 1e6), y: height - 6, "font-size": 10, "text-anchor": mark > total * 0.95 ? "end" : "start" }, timeText(mark, total)));
  return svg("svg", { class: "schedule", viewBox: `0 0 ${width} ${height}`, width, height }, ...rows, ...boxes.flat(), ...ticks);
}

function modelledPipeline(program) {
  const { seconds: length, efficiency, spans } = program.pipeline, tasks = [...new Set(spans.map(span => span[4]))];
  return [el("h3", {}, `A step of ${program.name || "the program"} on the IPUs of a replica, modelled`),
    el("p", {}, `${seconds(length)}, efficiency ${percent(efficiency)}: the IPUs work that part of the time; the rest, ${percent(1 - efficiency)}, is bubble.`),
    schedulePicture(program.pipeline), legend([...tasks.map(task => [task, taskColour(task)]), ["bubble", BUBBLE]])];
}

/** Work of each IPU as a part of the time in which steps run. */
function measuredPipeline(stages) {
  const share = ipu => stages.busy_by_ipu[ipu], ipus = Object.keys(stages.busy_by_ipu);
  const rows = (key, label) => table(Object.entries(stages[key]).map(([name, value]) => ({ name: +name, value })),
    [[label, row => row.name], ["work", row => row.value, seconds]], key);
  return [el("h3", {}, "All steps, as they were measured on the hosts"),
    el("p", {}, `The busiest IPU works ${stages.imbalance.toFixed(2)} times as long as the average one: efficiency of the balance ${percent(1 / stages.imbalance)}. `
      + `The emulated IPUs work ${percent(stages.efficiency)} of the time; those of a host share its processors.`),
    ...ipus.map(ipu => el("div", { className: "row" }, el("label", {}, `IPU ${ipu}`), el("div", { className: "bar" },
      part(`works ${percent(share(ipu))}`, share(ipu), TASKS.forward, `works ${percent(share(ipu))}`),
      el("div", { style: `width:${100 * (1 - share(ipu))}%;background:${BUBBLE}`, title: `waits ${percent(1 - share(ipu))}` })))),
    rows("seconds_by_stage", "stage"), rows("seconds_by_ipu", "IPU")];
}

function pipeline(data) {
  const modelled = data.programs.filter(program => program.pipeline);
  if (!data.stages && !modelled.length) return ["No pipeline."];
  return [...modelled.flatMap(modelledPipeline), ...(data.stages ? measuredPipeline(data.stages) : [])];
}
