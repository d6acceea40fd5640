// Program: the tabs about what each compiled program needs on IPUs, all of it modelled: memory, instructions, pipeline.

"use strict";

/** Tensors that live while instruction `at` runs, the largest first. */
function alive(memory, at) {
  return memory.not_always_live.filter(one => one.first <= at && at <= one.last);
}

/** What lives while an instruction runs: chosen by its number, or by a click on the chart; the peak at first. */
function instants(program, number, memory, id) {
  const last = memory.live_bytes.length - 1, shown = el("div", { id: `${id}-instant` });
  const input = el("input", { type: "number", id: `${id}-at`, min: 0, max: Math.max(last, 0), onchange: () => choose(+input.value) });
  const curve = chart(`liveness-${number}-${memory.ipu}`, null, at => choose(at));
  const choose = wanted => {
    const at = Math.min(Math.max(Math.round(wanted), 0), Math.max(last, 0)), tensors = alive(memory, at), instruction = program.instructions[at];
    input.value = at;
    if (curve) markChart(curve, at);
    shown.replaceChildren(el("h4", {}, `At instruction ${at}: ${instruction ? instruction.text : ""}`),
      el("p", {}, `${bytes(memory.live_bytes[at] || 0)} in ${tensors.length} tensors`),
      table(tensors.slice(0, 50), [["tensor", row => row.tensor], ["size", row => row.bytes, bytes], ["from instruction", row => row.first],
        ["to", row => row.last]], `${id}-alive`));
  };
  choose(Math.max(memory.live_bytes.indexOf(Math.max(...memory.live_bytes, 0)), 0));
  const how = curve ? "; click for what lives there" : "";
  return [el("h4", {}, `Not always live, by instruction${how}`), curve, el("label", {}, "instruction ", input), shown];
}

function memoryOf(program, number, memory, id) {
  const uses = Object.keys(memory.bytes_by_use).filter(use => memory.bytes_by_use[use]), limit = program.bytes_per_ipu;
  return [el("h3", {}, `IPU ${memory.ipu}: ${bytes(memory.bytes)} of ${bytes(limit)} (${percent(memory.bytes / limit)})`),
    table(uses.map(use => ({ use })), [["use", row => row.use], ["size", row => memory.bytes_by_use[row.use], bytes]], `${id}-uses`),
    ...instants(program, number, memory, id),
    el("h4", {}, "By op"), table(memory.by_op, [["op", row => row.name], ["output", row => row.output],
      ["at the peak", row => row.bytes_at_peak, bytes], ["always live", row => row.always_live_bytes, bytes],
      ["not always live", row => row.not_always_live_bytes, bytes]], `${id}-ops`),
    el("h4", {}, "Always live"), table(memory.always_live.slice(0, 100), [["tensor", row => row.tensor], ["role", row => row.role],
      ["size", row => row.bytes, bytes]], `${id}-always`)];
}

function memories(data) {
  if (!data.programs.length) return ["No program was compiled while the trace was recorded."];
  return data.programs.flatMap((program, number) => [el("h2", {}, `${program.name || "program"} (modelled)`), chart(`memory-${number}`),
    ...program.memory.flatMap(memory => memoryOf(program, number, memory, `memory-${number}-${memory.ipu}`)),
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

function checkpoints(data) {
  const { copies, sections } = data.checkpointing, mean = row => row.seconds / row.calls;
  return [
    ...(copies.length ? [el("h2", {}, "Weights to the host"), table(copies, [["tensor", row => row.tensor], ["phase", row => row.phase],
      ["replica", row => row.replica], ["IPU", row => row.ipu], ["memory", row => row.memory], ["bytes", row => row.bytes, bytes],
      ["copies", row => row.calls], ["a copy", mean, seconds], ["modelled", row => known(row.modelled_seconds), optional(seconds)]], "copies")] : []),
    ...(sections.length ? [el("h2", {}, "Sections of checkpoints"), table(sections, [["section", row => row.section], ["bytes", row => row.bytes, bytes],
      ["writes", row => row.calls], ["a write", mean, seconds]], "sections")] : []),
  ];
}

function modelledPipeline(program, number) {
  const { seconds: length, efficiency } = program.pipeline;
  return [el("h3", {}, `A step of ${program.name || "the program"} on the IPUs of a replica, modelled`),
    el("p", {}, `${seconds(length)}, efficiency ${percent(efficiency)}: the IPUs work that part of the time; the rest, ${percent(1 - efficiency)}, is bubble.`),
    chart(`schedule-${number}`)];
}

/** Work of each IPU as a part of the time in which steps run. */
function measuredPipeline(stages) {
  const rows = (key, label) => table(Object.entries(stages[key]).map(([name, value]) => ({ name: +name, value })),
    [[label, row => row.name], ["work", row => row.value, seconds]], key);
  return [el("h3", {}, "All steps, as they were measured on the hosts"),
    el("p", {}, `The busiest IPU works ${stages.imbalance.toFixed(2)} times as long as the average one: efficiency of the balance ${percent(1 / stages.imbalance)}. `
      + `The emulated IPUs work ${percent(stages.efficiency)} of the time; those of a host share its processors.`),
    chart("busy"), rows("seconds_by_stage", "stage"), rows("seconds_by_ipu", "IPU")];
}

function pipeline(data) {
  const modelled = data.programs.flatMap((program, number) => program.pipeline ? modelledPipeline(program, number) : []);
  if (!data.stages && !modelled.length) return ["No pipeline."];
  return [...modelled, ...(data.stages ? measuredPipeline(data.stages) : [])];
}
