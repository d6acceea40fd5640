// Program: the tabs about what each compiled program needs on IPUs, all of it modelled: memory, and instructions.

"use strict";

const USES = ["weights", "optimiser states", "other variables", "gradients", "stashes", "FIFOs", "transient", "code", "vertices", "exchange"];
const useColour = use => COLOURS[USES.indexOf(use) % COLOURS.length];

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Tensors that live while instruction `at` runs, the largest first. */
function alive(memory, at) {
  return memory.not_always_live.filter(one => one.first <= at && at <= one.last);
}

/** The bytes that are not always live, by instruction; a click calls `choose` with the instruction. */
function livenessCurve(memory, choose) {
  const width = 900, height = 160, left = 70, live = memory.live_bytes, n = Math.max(live.length, 1);
  const top = Math.max(1, ...live), x = at => left + at / n * (width - left), y = value => height - 20 - value / top * (height - 40);
  let path = `M ${x(0)} ${y(0)}`;
  live.forEach((value, at) => { path += ` L ${x(at)} ${y(value)} L ${x(at + 1)} ${y(value)}`; });
  const cursor = svg("line", { y1: 15, y2: height - 20, stroke: "#000", x1: -9, x2: -9 });
  const marks = [0, 0.5, 1].map(part => svg("text", { x: 4, y: y(part * top) + 4, "font-size": 11 }, bytes(part * top)));
  const step = Math.max(1, Math.round(roundStep(n, 8))), ticks = [];
  for (let at = 0; at < n; at += step) ticks.push(svg("text", { x: x(at), y: height - 5, "font-size": 10 }, String(at)));
  const picture = svg("svg", { class: "liveness", viewBox: `0 0 ${width} ${height}`, width, height },
    svg("path", { d: path + ` L ${x(n)} ${y(0)} Z`, fill: "#4e79a7", "fill-opacity": 0.5, stroke: "#4e79a7" }), cursor, ...marks, ...ticks);
  const show = at => { cursor.setAttribute("x1", x(at + 0.5)); cursor.setAttribute("x2", x(at + 0.5)); choose(at); };
  picture.addEventListener("click", event => {
    const box = picture.getBoundingClientRect(), place = (event.clientX - box.left) * width / box.width;
    show(Math.min(Math.max(Math.floor((place - left) / (width - left) * n), 0), n - 1));
  });
  show(live.indexOf(Math.max(...live, 0)) < 0 ? 0 : live.indexOf(Math.max(...live)));
  return picture;
}

function memoryOf(program, memory, id) {
  const uses = USES.filter(use => memory.bytes_by_use[use]), limit = program.bytes_per_ipu, widest = Math.max(limit, memory.bytes);
  const instant = el("div", { id: `${id}-instant` });
  const choose = at => {
    const instruction = program.instructions[at], tensors = alive(memory, at);
    instant.replaceChildren(el("h4", {}, `At instruction ${at}: ${instruction ? instruction.text : ""}`),
      el("p", {}, `${bytes(memory.live_bytes[at] || 0)} in ${tensors.length} tensors`),
      table(tensors.slice(0, 50), [["tensor", row => row.tensor], ["size", row => row.bytes, bytes], ["from instruction", row => row.first],
        ["to", row => row.last]], `${id}-alive`));
  };
  return [el("h3", {}, `IPU ${memory.ipu}: ${bytes(memory.bytes)} of ${bytes(limit)} (${percent(memory.bytes / limit)})`),
    el("div", { className: "bar" }, ...uses.map(use =>
      part(use, memory.bytes_by_use[use] / widest, useColour(use), `${use}: ${bytes(memory.bytes_by_use[use])}`))),
    legend(uses.map(use => [use, useColour(use)])),
    table(uses.map(use => ({ use })), [["use", row => row.use], ["size", row => memory.bytes_by_use[row.use], bytes]], `${id}-uses`),
    el("h4", {}, "Not always live, by instruction; click for what lives there"), livenessCurve(memory, choose), instant,
    el("h4", {}, "By op"), table(memory.by_op, [["op", row => row.name], ["output", row => row.output],
      ["at the peak", row => row.bytes_at_peak, bytes], ["always live", row => row.always_live_bytes, bytes],
      ["not always live", row => row.not_always_live_bytes, bytes]], `${id}-ops`),
    el("h4", {}, "Always live"), table(memory.always_live.slice(0, 100), [["tensor", row => row.tensor], ["role", row => row.role],
      ["size", row => row.bytes, bytes]], `${id}-always`)];
}

function memories(data) {
  if (!data.programs.length) return ["No program was compiled while the trace was recorded."];
  return data.programs.flatMap((program, number) => [el("h2", {}, `${program.name || "program"} (modelled)`),
    ...program.memory.flatMap(memory => memoryOf(program, memory, `memory-${number}-${memory.ipu}`)),
    program.stashes.length ? el("h3", {}, "Stashes and FIFOs of the pipeline") : "",
    program.stashes.length ? table(program.stashes, [["tensor", row => row.tensor], ["IPU", row => row.ipu], ["kind", row => row.kind],
      ["micro-batches", row => row.micro_batches], ["size", row => row.bytes, bytes]], `stashes-${number}`) : ""]);
}

function programs(data) {
  if (!data.programs.length) return ["No program was compiled while the trace was recorded."];
  const measured = new Map(data.ops.map(row => [row.name + " " + row.output, row.seconds / row.calls]));
  return data.programs.flatMap((program, number) => [el("h2", {}, program.name || "program"),
    el("p", {}, `A step takes ${seconds(program.modelled_seconds)} (${program.modelled_cycles.toLocaleString("en")} cycles), modelled, on `
      + `${program.ipus_per_replica} IPU${program.ipus_per_replica > 1 ? "s" : ""} per replica of ${program.tiles_per_ipu} tiles each, ${program.replicas} replicas.`),
    table(Object.entries(program.modelled_seconds_by_category).filter(([, value]) => value).map(([name, value]) => ({ name, value })),
      [["category", row => row.name], ["modelled, all IPUs of a replica", row => row.value, seconds]], `modelled-${number}`),
    el("h3", {}, "Instructions"),
    table(program.instructions, [["instruction", row => row.text], ["IPU", row => row.ipu], ["times a step", row => row.times_per_step],
      ["modelled", row => row.modelled_seconds, seconds], ["of it exchange", row => row.modelled_exchange_seconds, seconds],
      ["sync", row => row.modelled_sync_seconds, seconds], ["cycles", row => row.modelled_cycles], ["FLOPs", row => row.flops],
      ["bytes", row => row.bytes, bytes], ["measured here", row => known(measured.get(row.name + " " + row.output)), optional(seconds)]], `instructions-${number}`),
    el("h3", {}, "Program"), el("pre", {}, program.listing)]);
}
