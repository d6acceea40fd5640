"""Session options: poptorch.Options as the session options that PopTorch sets in PopART, and those set by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipu_emu.errors import EmulatorError
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.options.options import Options
from ipu_emu.session.options.option_enums import (
    MeanReductionStrategy,
    Numbered,
    PatternsLevel,
    RecomputationType,
    ReductionType,
    SyntheticDataMode,
    VirtualGraphMode,
)
from ipu_emu.session.options.patterns import Patterns
from ipu_emu.session.options.session_options import SessionOptions

#: Session options that decide the shapes of inputs and outputs, and the setter of poptorch.Options for each.
_OWN = {
    "accumulationFactor": "Training.gradientAccumulation",
    "enableGradientAccumulation": "Training.gradientAccumulation",
    "enableReplicatedGraphs": "replicationFactor",
    "replicatedGraphCount": "replicationFactor",
    "enableDistributedReplicatedGraphs": "Distributed.configureProcessId",
    "globalReplicationFactor": "Distributed.configureProcessId",
    "globalReplicaOffset": "Distributed.configureProcessId",
    "enablePipelining": "setExecutionStrategy",
    "virtualGraphMode": "setExecutionStrategy",
}
#: An option of PopTorch itself that is set in the same way: the emulator always keeps initializers in memory.
_OF_POPTORCH = "saveInitializersToFile"
_LEVELS = (PatternsLevel.NoPatterns, PatternsLevel.Minimal, PatternsLevel.Default, PatternsLevel.All)
_TYPES = {bool: "bool", int: "uint64", str: "string", float: "double", dict: "map", list: "vector"}


def session_options(options: Options, *, training: bool, ipus: int) -> SessionOptions:
    """Return the options of a session of a replica of ``ipus`` IPUs; raise poptorch.Error for invalid ones."""
    session, strategy = SessionOptions(), options._execution_strategy
    _replicate(session, options, training=training)
    pipelined = strategy.pipelined and ipus > 1
    session.enablePipelining = pipelined
    if ipus > 1:
        session.virtualGraphMode = VirtualGraphMode.ExecutionPhases if strategy.phased else VirtualGraphMode.Manual
    if pipelined and training:
        session.autoRecomputation = RecomputationType.Pipeline
    for name, settings in options.TensorLocations.settings().items():
        setattr(session, name, settings)
    session.numIOTiles = int(options.TensorLocations.num_io_tiles)
    session.constantWeights = False
    session.enableLoadAndOffloadRNGState = True
    session.enableStochasticRounding = bool(options.Precision.stochastic_rounding)
    session.enableFloatingPointChecks = bool(options.Precision.floating_point_exceptions)
    session.automaticLossScalingSettings.enabled = training and bool(options.Training.auto_loss_scaling)
    if options.enable_synthetic_data:
        session.syntheticDataMode = SyntheticDataMode.RandomNormal
    if options.executable_cache:
        session.enableEngineCaching, session.cachePath = True, options.executable_cache
    check_session_options(options._Popart.options, session)
    _check_patterns(options)
    session.check(training=training)
    return session


def _replicate(session: SessionOptions, options: Options, *, training: bool) -> None:
    local, processes = int(options.replication_factor), options.Distributed.numProcesses
    session.enableReplicatedGraphs, session.replicatedGraphCount = local > 1, local
    if processes > 1:
        session.enableDistributedReplicatedGraphs = True
        session.globalReplicationFactor = local * processes
        session.globalReplicaOffset = local * options.Distributed.processId
    settings = options.Training
    if training and settings.gradient_accumulation > 1:
        session.enableGradientAccumulation, session.accumulationFactor = True, int(settings.gradient_accumulation)
    reduction = settings.accumulation_and_replication_reduction_type
    session.accumulationAndReplicationReductionType = ReductionType[reduction.name]
    running = settings.meanAccumulationAndReplicationReductionStrategy.name == "Running"
    strategy = MeanReductionStrategy.Running if running else MeanReductionStrategy.Post
    session.meanAccumulationAndReplicationReductionStrategy = strategy


def check_session_options(named: Mapping[str, Any], session: SessionOptions | None = None) -> None:
    """Set the options ``named`` in ``session``; raise poptorch.Error for one that PopART does not have."""
    session = SessionOptions() if session is None else session
    for key, value in named.items():
        if key in _OWN:
            raise Error(
                f"The session option {key} decides how PopTorch shapes data, and _Popart.set cannot change it; use "
                f"poptorch.Options().{_OWN[key]}"
            )
        if key != _OF_POPTORCH:
            _set(session, str(key), value)


def _set(session: SessionOptions, key: str, value: Any) -> None:
    *groups, name = key.split(".")
    target: Any = session
    try:
        for group in groups:
            target = getattr(target, group)
        old = target.get(name) if isinstance(target, dict) else getattr(target, name)
    except AttributeError as error:
        kind = _TYPES.get(type(value))
        if kind is None:
            raise Error(f"Unknown value type {type(value)} for option {key}") from None
        raise Error(f"Unknown {kind} option {key}: {error}") from None
    try:
        if isinstance(target, dict):
            target[name] = value
        elif isinstance(old, dict) and isinstance(value, dict):
            old.update(value)
        else:
            setattr(target, name, type(old)(value) if isinstance(old, Numbered | set) else value)
    except (EmulatorError, TypeError, ValueError) as error:
        raise Error(f"Invalid value {value!r} for option {key}: {error}") from None


def _check_patterns(options: Options) -> None:
    """Raise poptorch.Error for an unknown pattern, or a mandatory one that is disabled; they change no result."""
    chosen = Patterns(_LEVELS[options._Popart._level])
    try:
        for name, enabled in options._Popart._patterns.items():
            chosen.enablePattern(name, enabled)
    except EmulatorError as error:
        raise Error(str(error), "popart_exception") from None
