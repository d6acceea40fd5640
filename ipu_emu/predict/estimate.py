"""Estimate: closed formulas at nominal rates, shown with their results (technical notes, 3.4, 7.2 and 7.3).

T = GA T_MB + T_AR         samples/s = R GA MBS / T         global batch = MBS GA R
T_AR = 2 S / B             rule of thumb: the tensor sent twice between neighbours
T_AR = 2 (R - 1)/R S / B   the exact ring
+ 2 (L - 1)/L S/R_d / B_GW between L IPU-Link domains of R_d replicas each; with two each pair exchanges S/R_d
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import Any

from gcl import LINK_BANDWIDTH, LinkClass
from gcl.drawing.units import counted
from ipu_emu.compiler.optimisers.optimiser_table import OPTIMISERS
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import Generation
from ipu_emu.hardware.rates import NOMINAL
from ipu_emu.hardware.tile_cycles import START, received, sync_cycles
from ipu_emu.predict import host, layer_parameters, memory
from ipu_emu.predict.job import Job
from ipu_emu.predict.laws import amdahl, fit_accumulation, gustafson
from ipu_emu.predict.layer_parameters import Parameters
from ipu_emu.predict.links import GATEWAY_RATE, Links, domains_of
from ipu_emu.predict.model import placed
from ipu_emu.predict.networks import NetworkBlock
from ipu_emu.predict.variable_memory import Variables, ipus_needed

#: Bytes per second of a rail, per direction.
LINK_RATE = LINK_BANDWIDTH[LinkClass.UP]


@dataclass(frozen=True)
class Line:
    """A result: ``key`` (with its unit) for JSON, ``name`` and ``formula`` for the printed table."""

    key: str
    name: str
    value: float
    formula: str


def lines_of_laws(constant: float, compute: float) -> Iterator[Line]:
    """Return the speed-ups by Amdahl's and by Gustafson's law."""
    faster = f"c = {constant:g}, s = {compute:g}"
    for name, law, formula in (
        ("Amdahl", amdahl, "fixed work: 1 / (c + (1 - c) / s)"),
        ("Gustafson", gustafson, "scaled work: c + (1 - c) s"),
    ):
        speedup = law(constant, compute)
        key = name.lower()
        yield Line(f"{key}_speedup", f"{name}, speed-up", speedup, f"{formula}, {faster}")
        yield Line(f"{key}_efficiency_percent", f"{name}, efficiency", 100 * speedup / compute, "speed-up / s, %")


def lines_of_times(
    micro_batch: float, reduction: float, *, batch: int, accumulation: int, replicas: int, compute: float
) -> Iterator[Line]:
    """Return the time of a step from T_MB and T_AR."""
    step, samples = accumulation * micro_batch + reduction, batch * accumulation * replicas
    if not 0 < step < inf or min(micro_batch, reduction) < 0:
        raise EmulatorError("times must be finite and at least 0, and T_MB or T_AR must be above 0")
    yield Line("global_batch_samples", "global batch", samples, "MBS GA R")
    yield Line("step_seconds", "step", step, "T = GA T_MB + T_AR")
    yield Line("samples_per_second", "throughput", samples / step, "R GA MBS / T")
    yield Line("seconds_per_sample", "time per sample", step / samples, "1 / throughput; not a latency")
    yield Line("constant_share", "constant share c", reduction / step, "T_AR / T")
    yield from lines_of_laws(reduction / step, compute)


def lines_of_reduction(
    nbytes: float, *, replicas: int, domains: int, rate: float = LINK_RATE, gateway: float = GATEWAY_RATE
) -> Iterator[Line]:
    """Return T_AR of a tensor by the rule of thumb, by the exact ring, and between IPU-Link domains."""
    if replicas % domains:
        raise EmulatorError(f"{replicas} replicas in {domains} domains: use a number of domains that divides them")
    if not (rate > 0 and gateway > 0 and nbytes > 0):
        raise EmulatorError("rates and the bytes of a tensor must be above 0")
    here = replicas // domains
    terms = f"S = {nbytes:,.0f} B, B = {rate / 1e9:.3f} GB/s"
    rule, ring = 2 * nbytes / rate if replicas > 1 else 0.0, 2 * (here - 1) / here * nbytes / rate
    yield Line("rule_seconds", "T_AR, rule", rule, f"2 S / B, {terms}")
    yield Line("ring_seconds", f"T_AR, ring of {here}", ring, f"2 (R - 1)/R S / B, R = {here}")
    if domains > 1:
        across = 2 * (domains - 1) / domains * nbytes / here / gateway
        formula = f"2 (L - 1)/L S/R / B_GW, L = {domains}, B_GW = {gateway / 1e9:g} GB/s per IPU"
        yield Line("between_domains_seconds", f"T_AR, between {domains} domains", across, formula)
        yield Line("three_phase_seconds", "T_AR, three phases", ring + across, "ring + between domains")
        if domains == 2:
            yield Line("exchanged_bytes", "exchanged by each pair", nbytes / here, "S / R, of two Pods only")


def lines_of_points(points: Sequence[tuple[float, float]]) -> Iterator[Line]:
    """Return t and c fitted to measured steps."""
    fit = fit_accumulation(points)
    if not fit.micro_batch > 0:
        raise EmulatorError(
            "steps of more micro-batches take no longer than those of fewer, so there is no t above 0; check --point"
        )
    free = f"{fit.freedom} degrees of freedom" + (": exact, nothing is tested" if fit.freedom == 0 else "")
    yield Line("micro_batch_seconds", "t per micro-batch", fit.micro_batch, f"step = GA t + c, {free}")
    yield Line("constant_seconds", "c per step", fit.constant, "step - GA t")
    yield Line("largest_residual", "largest residual", max(map(abs, fit.residuals)), "relative to the step")
    yield Line("degrees_of_freedom", "degrees of freedom", fit.freedom, "points - 2")


def lines_of_product(
    sizes: tuple[int, int, int], itemsize: int, generation: Generation, proportions: Sequence[float]
) -> Iterator[Line]:
    """Return temporary memory and cycles of [M, K] x [K, N] for values of availableMemoryProportion.

    Columns are computed in as many parts as the temporary memory allows; A is sent again for each part.
    """
    rows, depth, columns = sizes
    flops, tiles = 2 * rows * depth * columns, generation.tiles
    rate = generation.peak(itemsize) / generation.clock
    for proportion in proportions:
        parts, allowed = 1, proportion * generation.tile_memory
        while (
            nbytes := _received_bytes(rows, depth, columns / parts, itemsize, tiles)
        ) > allowed and parts < columns:
            parts *= 2
        exchange = parts * (START + sync_cycles(generation) + nbytes / generation.exchange_bytes)
        text = f"of {allowed:,.0f} B allowed ({proportion:g} of a tile), in {counted(parts, 'part')} of N"
        yield Line(f"temporary_{proportion:g}_bytes", f"temporary on a tile, {proportion:g}", nbytes, text)
        text = "parts (11 + sync + bytes / 4) + 2 M K N / rate of the matrix units"
        yield Line(f"cycles_{proportion:g}", f"cycles, {proportion:g}", exchange + flops / rate, text)


def _received_bytes(rows: int, depth: int, columns: float, itemsize: int, tiles: int) -> float:
    a, b, c = rows * depth, depth * columns, rows * columns
    return itemsize * received(a, b, c, a * columns, tiles)


# ---------------------------------------------------------------- layers and models


def layer(text: str) -> tuple[Parameters, int]:
    """Parse a layer, and its activations: dense:1000:10, conv:3x3:64:128, batchnorm:10, layernorm:768, ...

    ``:nobias`` at the end drops biases. Activations of normalisations (in place), and of convolutions, embeddings and
    encoder layers (unknown without the size of the input) count as 0.
    """
    kind, *sizes = text.split(":")
    bias = sizes[-1:] != ["nobias"]
    sizes = sizes if bias else sizes[:-1]
    try:
        if kind == "conv":
            width, height = (int(size) for size in sizes.pop(0).split("x"))
            channels, filters = map(int, sizes)
            return layer_parameters.convolution((width, height), channels, filters, bias=bias), 0
        numbers = [int(size) for size in sizes]
        if min(numbers) < 1:
            raise ValueError
        if kind == "dense":
            inputs, outputs = numbers
            return layer_parameters.dense(inputs, outputs, bias=bias), outputs
        parameters: Parameters = _LAYERS[kind](*numbers)
        return parameters, 0
    except (ValueError, KeyError, TypeError):
        raise EmulatorError(
            f"--layer {text} is not valid; write dense:1000:10, conv:3x3:64:128, batchnorm:64, layernorm:768, "
            "embedding:30522:768 or encoder:768; :nobias at the end drops biases"
        ) from None


_LAYERS: dict[str, Any] = {
    "batchnorm": layer_parameters.batch_norm,
    "layernorm": layer_parameters.layer_norm,
    "embedding": layer_parameters.embedding,
    "encoder": layer_parameters.encoder_layer,
}


def lines_of_variables(
    variables: Variables, itemsize: int, *, batch: int, optimiser: str, training: bool, generation: Generation
) -> Iterator[Line]:
    """Return parameters, states, and memory by both formulas."""
    counts = variables.parameters
    yield Line("trainable_parameters", "trainable parameters", counts.trainable, "weights + biases")
    yield Line("non_trainable_parameters", "non-trainable", counts.non_trainable, "2 n per batch norm of n channels")
    states = variables.optimiser(optimiser) if training else 0
    text = f"values of {optimiser}" if training else "none: inference"
    yield Line("state_values", "optimiser states", states, text)
    if not training:
        nbytes = variables.inference(itemsize)
        yield Line("inference_bytes", "memory", nbytes, "(N_weights + N_biases + N_non_trainable) N_FP")
        yield _needed(nbytes, generation)
        return
    gradients = variables.gradients(batch)
    yield Line("activation_values", "activations", gradients, "N_gradients = N_activations x batch")
    literal, once = (
        variables.training(itemsize, batch=batch, optimiser=optimiser, literal=is_literal)
        for is_literal in (True, False)
    )
    text = "(N_weights + N_biases + N_gradients + N_optimiser + N_backprop) N_FP; states and weights count twice"
    yield Line("literal_bytes", "memory, literal", literal, text)
    text = "weights, statistics, activations, states, and a gradient of each weight, once each"
    yield Line("deduplicated_bytes", "memory, deduplicated", once, text)
    yield _needed(once, generation)


def _needed(nbytes: int, generation: Generation) -> Line:
    text = f"a power of two whose {generation.name} memory x 0.6 holds it, without code"
    return Line("ipus_needed", "IPUs needed", ipus_needed(nbytes, generation), text)


def variables_of_layers(texts: Sequence[str], activations: int | None, *, training: bool) -> Variables:
    """Return the variables of layers given one by one; ``activations``: of all, if they are known."""
    parsed = [layer(text) for text in texts]
    parameters = sum((weights if training else weights.in_inference for weights, _ in parsed), Parameters(0))
    return Variables(parameters, sum(count for _, count in parsed) if activations is None else activations)


def lines_of_model(job: Job, compute: float) -> Iterator[Line]:
    """Return the results for a network, with everything at nominal rates."""
    model = placed(job)
    on_each = (model.sample_seconds(NOMINAL, ipu, recompute=job.recompute).sum() for ipu in range(model.work.ipus))
    slot = job.batch * float(max(on_each))
    peak = job.system.generation.peak(job.itemsize)
    yield Line("forward_flops", "forward operations", job.network.flops, "matrix products of a sequence or image")
    text = f"busiest IPU: operations of {job.batch} / {peak / 1e12:.1f} TFLOP/s, and vector operations"
    yield Line("micro_batch_seconds", "T_MB", slot, text)
    size = float(model.work.trained.max()) * job.itemsize
    reduction = 0.0
    if job.training and job.replicas > 1:
        count = int(domains_of(job.replicas, job.ipus, job.system))
        full_replicas = -(-job.replicas // count) * count
        reductions = list(lines_of_reduction(size, replicas=full_replicas, domains=count))
        yield from reductions
        by = {line.key: line.value for line in reductions}
        reduction = by["rule_seconds"] + by.get("between_domains_seconds", 0.0)
        links = Links(job.system, job.ipus)
        chosen = links.gradients(job.replicas, model.reductions, job.itemsize, sharded="states" in job.shared)
        text = "by the methods that GCL would choose, of one IPU of a replica after the other, without waits"
        yield Line("gcl_seconds", "T_AR, GCL", chosen.transfer + chosen.gateway, text)
    yield from _statistics(job, model.work.norms)
    slots = job.accumulation + (job.ipus - 1 if job.ipus > 1 else 0)
    step = slots * slot + reduction
    text = "T = GA T_MB + T_AR" if job.ipus == 1 else "T = (GA + N - 1) T_MB + T_AR, N IPUs per replica"
    yield Line("global_batch_samples", "global batch", job.global_batch, "MBS GA R packing")
    yield Line("step_seconds", "step", step, text)
    yield Line("samples_per_second", "throughput", job.global_batch / step, "global batch / T, nothing calibrated")
    if job.samples:
        text = "samples x epochs / throughput, without evaluation and checkpoints"
        yield Line("seconds_to_train", "time to train", job.samples * job.epochs * step / job.global_batch, text)
    yield from _input(job)
    yield Line("constant_share", "constant share c", reduction / step, "T_AR / T")
    yield from lines_of_laws(reduction / step, compute)
    yield from lines_of_variables(
        memory.variables(job),
        job.itemsize,
        batch=job.batch,
        optimiser=job.optimiser,
        training=job.training,
        generation=job.system.generation,
    )
    if job.training:
        wide = ", ".join(name for name, optimiser in OPTIMISERS.items() if optimiser.is_wide)
        text = f"deduplicated, with states in FLOAT for {wide}"
        yield Line("stored_bytes", "memory, as stored", memory.formula_bytes(job)[1], text)


def _statistics(job: Job, norms: Sequence[Sequence[int]]) -> Iterator[Line]:
    most = max(norms, key=len, default=[])
    if job.bn_span > 1 and most and job.training:
        links = Links(job.system, job.ipus)
        reductions = [links.statistics(job.bn_span, channels) for channels in most]
        seconds = 2 * sum(reduction.transfer + reduction.latency for reduction in reductions)
        text = f"{len(most)} norms x 2 passes, an all-reduce in groups of {job.bn_span} each; not in T_MB"
        yield Line("batch_norm_span_seconds", "batch-norm span", seconds, text)


def _input(job: Job) -> Iterator[Line]:
    nbytes = host.bytes_per_sample(job)
    yield Line("input_bytes", "input", nbytes, f"bytes of a sample with its labels, {host.input_dtype(job)}")
    for name, seconds in host.limits(job, job.replicas, job.batch).items():
        most = job.batch * job.replicas * job.packing / float(seconds)
        yield Line(f"{name}_samples_per_second", f"limit of {name}", most, "samples/s that it can bring in")


def table_of(job: Job) -> list[dict[str, Any]]:
    """Return the table of layers; equal consecutive layers are one row with their number."""
    layers = [tuple(group) for _, group in groupby(job.network.blocks, lambda block: block.name.rsplit("/", 1)[0])]
    equal = [list(group) for _, group in groupby(layers, lambda layer: tuple(map(_sizes, layer)))]
    return [
        {
            "block": block.name,
            "count": len(group),
            "parameters": block.parameters,
            "forward_flops": block.matrix,
            "vector_operations": block.vector,
            "activation_values": block.stashed + block.output,
        }
        for group in equal
        for block in group[0]
    ]


def _sizes(block: NetworkBlock) -> tuple[Any, ...]:
    return (block.kind, block.parameters, block.matrix, block.vector, block.stashed, block.output)
