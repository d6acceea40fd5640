"""Compiling: compiles a trace with the options of its executor."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise

from ipu_emu.compiler.annotations import EXECUTION_PHASE, IPU_NUMBER, PIPELINE_STAGE
from ipu_emu.compiler.optimisers.update_rule import UpdateRule
from ipu_emu.compiler.options import TrainingOptions
from ipu_emu.compiler.pipeline import CompileState
from ipu_emu.compiler.placement.graph_balance import MicroBatchWork, SharedWeights, balanced_places
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.hardware import GENERATIONS
from ipu_emu.onnx.properties import ModelProperties
from ipu_emu.poptorch.enums import ConnectionType, OutputMode
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.executor.session_options import session_options
from ipu_emu.poptorch.graph_writer import BLOCK
from ipu_emu.poptorch.options.options import Options
from ipu_emu.poptorch.options.strategies import BalancedPipeline, Strategy
from ipu_emu.poptorch.system import uses_ipu_model
from ipu_emu.poptorch.tracing.trace import ModuleTrace
from ipu_emu.program.anchors import Anchor, Return
from ipu_emu.session.compiled_program import CompiledProgram, Target, compile_program
from ipu_emu.session.memory_advice import MemoryAdvice
from ipu_emu.session.memory_remedies import RemedyKind
from ipu_emu.session.options.compile_options import cache_folder, compile_options, loss_scaler, with_streams
from ipu_emu.session.options.session_options import SessionOptions

_MOST_IPUS = 64
#: Generations of offline IPUs by PopTorch's number.
_VERSIONS = {int(version.removeprefix("ipu")): version for version in GENERATIONS}
#: Changes that may save memory, as PopTorch's options.
_LOCATION = "options.TensorLocations.set{}Location(poptorch.TensorLocationSettings().{})"
_WORDS = {
    RemedyKind.STATES_SHARDED: _LOCATION.format("Optimizer", "useReplicatedTensorSharding()"),
    RemedyKind.STATES_OFF_CHIP: _LOCATION.format("Optimizer", "useOnChipStorage(False)"),
    RemedyKind.ACCUMULATORS_OFF_CHIP: _LOCATION.format("Accumulator", "useOnChipStorage(False)"),
    RemedyKind.ACTIVATIONS_OFF_CHIP: _LOCATION.format("Activation", "useOnChipStorage(False)"),
    RemedyKind.WEIGHTS_OFF_CHIP: _LOCATION.format("Weight", "useOnChipStorage(False)"),
    RemedyKind.RECOMPUTE: 'options._Popart.set("autoRecomputation", 1)',
}
_FURTHER = "A model in float16 (module.half()), or smaller micro-batches and more of them, also need less"


def compile_trace(trace: ModuleTrace, options: Options, rule: UpdateRule | None) -> CompiledProgram:
    """Compile, or load the executable from the cache; raise EmulatorError or poptorch.Error if that fails."""
    training, strategy = rule is not None, options._execution_strategy
    graph, ipus, stages = _placed(trace, options, training=training)
    _check_ipus(options, ipus)
    if strategy.pipelined and ipus > 1:
        _check_depth(options, stages, training=training)
    session = session_options(options, training=training, ipus=ipus)
    batches = int(options.device_iterations)
    chosen = compile_options(
        session,
        batches,
        _anchors(trace, options),
        ModelProperties(),
        ipus=ipus,
        training=_training_options(trace, session, rule),
    )
    inputs = [tensor.id for tensor in graph.with_role(Role.INPUT)]
    chosen = with_streams(chosen, session, batches, ModelProperties(), inputs, sync=options.sync_pattern.name)
    return compile_program(
        CompileState(graph, chosen),
        _target(options, session, ipus),
        MemoryAdvice(
            _WORDS | {RemedyKind.MORE_IPUS: strategy.more_ipus},
            lambda request: CompileState(graph, request.options),
            further=_FURTHER,
        ),
        cache=cache_folder(session.cacheFolder()),
    )


def _target(options: Options, session: SessionOptions, ipus: int) -> Target:
    offline = options.connection_type is ConnectionType.Never
    return Target.in_system(
        ipus,
        local=session.localReplicas(),
        offset=session.globalReplicaOffset,
        total=session.getGlobalReplicationFactor(),
        io_tiles=session.numIOTiles,
        version=_VERSIONS.get(options.ipu_version, "") if offline else "",
        model=_on_model(options),
    )


def _on_model(options: Options) -> bool:
    return uses_ipu_model() if options.use_model is None else bool(options.use_model)


def _training_options(trace: ModuleTrace, session: SessionOptions, rule: UpdateRule | None) -> TrainingOptions | None:
    if rule is None or trace.loss is None:
        return None
    trained = frozenset(name for name, is_trained in trace.parameters.items() if is_trained)
    return TrainingOptions(trace.loss, rule, loss_scaler(session), trained, bool(session.ensureFp32LossScaleTensor))


# Placement


def _placed(trace: ModuleTrace, options: Options, *, training: bool) -> tuple[Graph, int, int]:
    """The graph with the IPU and stage of each op, and the numbers of IPUs and of stages."""
    strategy = options._execution_strategy
    if isinstance(strategy, BalancedPipeline):
        return _balanced(trace.graph, strategy, training=training)
    used = {op.attributes.get(BLOCK, 0) for op in trace.graph.ops}
    places = strategy.place(trace.blocks) if len(trace.blocks) > 1 else [(0, 0)]
    stages = sorted({places[block][0] for block in used} | ({places[0][0]} if not used else set()))
    number = {stage: index for index, stage in enumerate(stages)}
    ipus = max((places[block][1] for block in used), default=0) + 1
    graph = trace.graph.copy()
    placed = [(number[stage], ipu) for stage, ipu in (places[op.attributes.get(BLOCK, 0)] for op in graph.ops)]
    graph.ops = [_on(op, *place, ipus, strategy) for op, place in zip(graph.ops, placed, strict=True)]
    order = [places[block][1] for block in sorted(used, key=lambda block: places[block][0])]
    switches = 1 + sum(1 for a, b in pairwise(order) if a != b)
    return graph, ipus, switches


def _balanced(traced: Graph, strategy: BalancedPipeline, *, training: bool) -> tuple[Graph, int, int]:
    ipus, work = strategy.ipus, MicroBatchWork.of(training=training, recomputes=False)
    graph, places = traced.copy(), balanced_places(traced, (1.0,) * ipus, work=work, shared=SharedWeights.HOME)
    graph.ops = [_on(op, stage, ipu, ipus, strategy) for op, (ipu, stage) in zip(graph.ops, places, strict=True)]
    return graph, ipus, max(stage for _, stage in places) + 1


def _on(op: Op, stage: int, ipu: int, ipus: int, strategy: Strategy) -> Op:
    attributes = {name: value for name, value in op.attributes.items() if name != BLOCK}
    if strategy.phased:
        attributes[EXECUTION_PHASE] = stage
    elif ipus > 1:
        attributes[IPU_NUMBER] = ipu
        if strategy.pipelined:
            attributes[PIPELINE_STAGE] = stage
    return replace(op, attributes=attributes)


def _check_ipus(options: Options, ipus: int) -> None:
    total = ipus * options.replication_factor
    rounded = 1 << (total - 1).bit_length()
    if total > _MOST_IPUS:
        raise Error(
            f"Too many IPUs requested ({total}). Experiments that need more than {_MOST_IPUS} IPUs need several "
            "processes, started with poprun-py"
        )
    if rounded == total or _on_model(options) or options.auto_round_num_ipus is None:
        return
    if options.auto_round_num_ipus:
        warnings.warn(
            f"The model specifies the use of {total} IPUs, however PopTorch must reserve a minimum of {rounded}; "
            f"{rounded - total} of them will be idle",
            stacklevel=2,
        )
        return
    raise Error(
        f"The model specifies the use of {total} IPUs, however PopTorch must reserve a minimum of {rounded} in order "
        "to allow the model to run, because PopTorch must reserve a power of 2 or a multiple of 64 IPUs. Please "
        "reconfigure your model to use a different number of IPUs or set poptorch.Options().autoRoundNumIPUs(True)."
    )


def _check_depth(options: Options, stages: int, *, training: bool) -> None:
    accumulation, iterations = options.Training.gradient_accumulation, options.device_iterations
    if training and accumulation < 2 * stages - 1:
        raise Error(
            "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number of "
            f"pipeline stages ({2 * stages - 1}) when using poptorch.PipelinedExecution. Please note that a model "
            f"with {stages} pipeline stages in PopTorch will have an additional {stages - 1} stages when training."
        )
    if not training and iterations < stages:
        raise Error(
            "poptorch.Options().deviceIterations must be greater than or equal to the number of pipeline stages "
            f"({stages}) when using PopTorch.PipelinedExecution."
        )


# Anchors


def _anchors(trace: ModuleTrace, options: Options) -> tuple[Anchor, ...]:
    mode = options.output_mode
    ids = dict.fromkeys(output for output in trace.outputs if isinstance(output, str))
    anchors = {id: Anchor(id, Return(mode.name), int(options.output_return_period)) for id in ids}
    anchors |= {id: Anchor(id, Return.ALL) for id in trace.changed_inputs.values() if id not in anchors}
    for id, own, period in options.anchored_tensors.values():
        chosen = mode if own in (None, OutputMode.Default) else own
        anchors.setdefault(id, Anchor(id, Return(chosen.name), int(period)))
    return tuple(anchors.values())
