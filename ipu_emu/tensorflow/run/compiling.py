"""Compiling: an imported section and the options of its program as an executable."""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.gradients.gradient import GradientReduction
from ipu_emu.compiler.memory.tensor_locations import LocationRule, StorageChoice, TensorLocations
from ipu_emu.compiler.options import CompileOptions, HostStreams
from ipu_emu.compiler.pipeline import CompileState
from ipu_emu.compiler.placement.placement_options import PipelineOptions
from ipu_emu.compiler.traced_training import traced_step
from ipu_emu.graph import StepPhase
from ipu_emu.hardware import SelectionOrder, chosen_order
from ipu_emu.program.anchors import Anchor, Return, StepShape
from ipu_emu.session.compiled_program import CompiledProgram, Target, compile_program
from ipu_emu.session.memory_advice import MemoryAdvice
from ipu_emu.session.memory_remedies import RemedyKind
from ipu_emu.session.options.compile_options import cache_folder
from ipu_emu.tensorflow.importer.section_import import ImportedSection
from ipu_emu.tensorflow.run.configured_system import DeviceShare, is_attached
from ipu_emu.tensorflow.run.environment import flags, uses_ipu_model

_REDUCTIONS = {"RUNNING_MEAN": GradientReduction.MEAN_RUNNING}


#: Changes that may save memory: those of any program, and those of pipelines, as TensorFlow's arguments.
_WORDS = {RemedyKind.RECOMPUTE: "IPUConfig.allow_recompute = True"}
_WORDS_OF_PIPELINES = _WORDS | {
    RemedyKind.STATES_OFF_CHIP: "offload_weight_update_variables=True",
    RemedyKind.ACCUMULATORS_OFF_CHIP: "offload_gradient_accumulation_buffers=True",
    RemedyKind.ACTIVATIONS_OFF_CHIP: "offload_activations=True",
    RemedyKind.WEIGHTS_OFF_CHIP: "offload_weights=True",
}
_FURTHER = (
    "More pipeline stages, the Sequential schedule, offload_weight_update_variables of a gradient accumulation "
    "optimizer, or a smaller mini-batch also save memory"
)


def runs_of(imported: ImportedSection) -> int:
    """The number of runs of the executable of a section: a pipeline without updates runs once per repetition."""
    section = imported.section
    return section.batches if section.pipeline and not _trains(imported) else 1


def _trains(imported: ImportedSection) -> bool:
    return bool(imported.gradients) or any(op.phase is StepPhase.UPDATE for op in imported.graph.ops)


def step_of(imported: ImportedSection, local: int) -> StepShape:
    """Batches and micro-batches of one run of the executable."""
    section = imported.section
    if section.pipeline and not _trains(imported):
        return StepShape(section.accumulation, 1, local)
    return StepShape(section.batches, section.accumulation, local)


def compile_state(imported: ImportedSection, share: DeviceShare, *, synthetic: bool = False) -> CompileState:
    """Return the compiler's state for a section, before the passes."""
    step = step_of(imported, share.local)
    options = CompileOptions(
        step=step,
        anchors=tuple(_anchors(imported)),
        replicas=share.total,
        reduction=_REDUCTIONS.get(imported.section.reduction, GradientReduction.SUM),
        bucket_bytes=_bucket_bytes(share),
        pipeline=_pipeline(imported),
        locations=_locations(imported, share),
        recomputation=_recomputation(imported, share),
        streams=HostStreams(ahead={}, staged={}, synthetic=synthetic),
        stochastic_rounding=_rounds(share),
        sync="SinglePipeline" if imported.section.pipeline else "Full",  # no stage waits for another's host I/O
    )
    return traced_step(imported.graph, options, imported.gradients, trains=_trains(imported))


def compile_section(imported: ImportedSection, share: DeviceShare, *, synthetic: bool = False) -> CompiledProgram:
    """Compile a section; raise EmulatorError if that fails, and OutOfMemoryError if it does not fit."""
    words = _WORDS if imported.section.pipeline is None else _WORDS_OF_PIPELINES
    target = Target.in_system(
        share.ipus,
        local=share.local,
        offset=share.offset,
        total=share.total,
        io_tiles=int(share.option("io_tiles.num_io_tiles", 0)),
        order=_order(imported, share),
        version="" if is_attached(share.system) else share.system.config.device_connection.version,
        model=uses_ipu_model(),
    )
    state = compile_state(imported, share, synthetic=synthetic)
    return compile_program(
        state,
        target,
        MemoryAdvice(words, lambda request: replace(state, options=request.options), further=_FURTHER),
        cache=cache_folder(flags().get("executable_cache_path")),
    )


def rows_of(compiled: CompiledProgram) -> dict[str, int]:
    """The rows of each anchor in a run of a section."""
    step = compiled.executable.step
    return {
        anchor.tensor: step.batches * step.accumulation // step.divisor(anchor) * step.replicas
        for anchor in compiled.step.options.anchors
    }


def _anchors(imported: ImportedSection) -> list[Anchor]:
    anchors: dict[str, Anchor] = {}
    for outfeed in imported.outfeeds:
        every = Return.UPDATE if outfeed.in_update else Return.ALL
        returns = every if outfeed.queue.keeps_all or outfeed.when else Return.FINAL
        anchors |= {id: Anchor(id, returns) for id in (*outfeed.arrays, outfeed.when) if isinstance(id, str)}
    for id in imported.exports.values():
        if isinstance(id, str):
            anchors[id] = Anchor(id, Return.FINAL)
    return list(anchors.values())


def _pipeline(imported: ImportedSection) -> PipelineOptions | None:
    pipeline = imported.section.pipeline
    if pipeline is None:
        return None
    call = pipeline.call
    concurrent = any(len(entry) > 1 for entry in call.mapping)
    iterations = call.batch_serialization_iterations
    return PipelineOptions(call.kind.name.lower(), iterations, concurrent, bool(pipeline.sharded))


def _order(imported: ImportedSection, share: DeviceShare) -> SelectionOrder:
    """The order of the IPUs of a replica on the device, which AUTO makes depend on the stages of a pipeline."""
    pipeline = imported.section.pipeline
    stages = None if pipeline is None else [ipu for entry in pipeline.call.mapping for ipu in entry]
    chosen = share.option("selection_order", SelectionOrder.AUTO)
    return chosen_order(SelectionOrder[chosen.name], stages)


def _bucket_bytes(share: DeviceShare) -> int | None:
    names = ("maximum_cross_replica_sum_buffer_size", "maximum_reduce_many_buffer_size")
    return max((int(share.option(f"optimizations.{name}", 0)) for name in names), default=0) or None


def _rounds(share: DeviceShare) -> bool:
    chosen = share.option("floating_point_behaviour.esr", None)
    return getattr(chosen, "name", None) in ("ON", "REPLICA_IDENTICAL_ONLY")


def _locations(imported: ImportedSection, share: DeviceShare) -> TensorLocations:
    pipeline = imported.section.pipeline
    states = imported.section.offload
    accumulators = activations = weights = False
    if pipeline is not None:
        call = pipeline.call
        states = call.offload_weight_update_variables
        activations = bool(call.offload_activations)
        accumulators = bool(call.offload_gradient_accumulation_buffers)
        weights = bool(call.offload_weights)
    smallest = int(share.option("optimizations.minimum_remote_tensor_size", 128)) // 4

    def rule(off_chip: bool, sharded: bool = False) -> LocationRule:
        return LocationRule(StorageChoice(off_chip=off_chip, sharded=sharded), smallest, smallest)

    sharded = imported.section.shard_states  # sharded states are off-chip unless the program sets it
    of_states = rule(sharded if states is None else states, sharded)
    return TensorLocations(rule(weights), of_states, rule(accumulators), rule(activations), by_id={})


def _recomputation(imported: ImportedSection, share: DeviceShare) -> Recomputation:
    if not share.option("allow_recompute", False):
        return Recomputation.NONE
    pipeline = imported.section.pipeline
    if pipeline is None:
        return Recomputation.STANDARD
    call = pipeline.call
    then = call.recomputation_mode.name == "RecomputeThenBackpropagate"
    auto = call.recomputation_mode.name == "Auto" and call.kind.name != "Sequential"
    return Recomputation.PIPELINE if (then or auto) and _one_stage_each(imported) else Recomputation.STANDARD


def _one_stage_each(imported: ImportedSection) -> bool:
    """Whether no two stages share an IPU."""
    places = {op.place for op in imported.graph.ops if op.phase is StepPhase.FORWARD}
    return len({place.ipu for place in places}) == len(places)
