"""The PopTorch front end: ``import ipu_emu.poptorch as poptorch``."""

import importlib.util as _modules

if _modules.find_spec("torch") is None:
    raise ImportError("ipu_emu.poptorch needs PyTorch, which is not installed; pip install 'poprun-py[torch]'")

from ipu_emu.poptorch import _impl, enums, optim, poptorch_core, profiling
from ipu_emu.poptorch.blocks import BeginBlock, Block, BlockFunction, module_repr, print, removeBlocks
from ipu_emu.poptorch.data import AsynchronousDataAccessor, DataLoader
from ipu_emu.poptorch.enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MeanReductionStrategy,
    MultiConvPlanType,
    OutputMode,
    OverlapMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
    VariableRetrievalMode,
)
from ipu_emu.poptorch.errors import ConfigFileError, Error, RecoverableError, UnrecoverableError
from ipu_emu.poptorch.executor.executor import PoplarExecutor, inferenceModel, load, trainingModel
from ipu_emu.poptorch.executor.hooks import registerPostCompileHook, registerPreCompileHook
from ipu_emu.poptorch.ops import (
    CPU,
    Attribute,
    MultiConv,
    NameScope,
    cond,
    ctc_beam_search_decoder,
    custom_op,
    dynamic_slice,
    dynamic_update,
    for_loop,
    identity_loss,
    ipu_print_tensor,
    isRunningOnIpu,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from ipu_emu.poptorch.options.options import Options
from ipu_emu.poptorch.options.strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)
from ipu_emu.poptorch.options.tensor_locations import TensorLocationSettings
from ipu_emu.poptorch.point_clouds import fps, nearest
from ipu_emu.poptorch.system import ipuHardwareIsAvailable, ipuHardwareVersion, setLogLevel
from ipu_emu.poptorch.tracing.argument_parsers import ICustomArgParser, registerCustomArgParser

__all__ = [
    "CPU", "AsynchronousDataAccessor", "Attribute", "AutoStage", "BeginBlock", "Block", "BlockFunction",
    "CommGroupType", "ConfigFileError", "ConnectionType", "DataLoader", "DataLoaderMode", "Error",
    "HalfFloatCastingBehavior", "ICustomArgParser", "Liveness", "MatMulSerializationMode", "MeanReductionStrategy",
    "MultiConv", "MultiConvPlanType", "NameScope", "Options", "OutputMode", "OverlapMode", "ParallelPhasedExecution",
    "Phase", "PipelinedExecution", "PoplarExecutor", "RecoverableError", "ReductionType", "SerialPhasedExecution",
    "ShardedExecution", "SharingStrategy", "Stage", "SyncPattern", "TensorLocationSettings", "UnrecoverableError",
    "VariableRetrievalMode", "_impl", "cond", "ctc_beam_search_decoder", "custom_op", "dynamic_slice",
    "dynamic_update", "enums", "for_loop", "fps", "identity_loss", "inferenceModel", "ipuHardwareIsAvailable",
    "ipuHardwareVersion", "ipu_print_tensor", "isRunningOnIpu", "load", "module_repr", "nearest", "nop", "optim",
    "poptorch_core", "print", "profiling", "recomputationCheckpoint", "registerCustomArgParser",
    "registerPostCompileHook", "registerPreCompileHook", "removeBlocks", "serializedMatMul", "setLogLevel",
    "set_available_memory", "set_overlap_for_input", "set_overlap_for_output", "trainingModel",
]  # fmt: skip

__version__ = "3.4.0"
