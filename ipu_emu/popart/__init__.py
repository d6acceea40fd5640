"""The PopART front end: ``import ipu_emu.popart as popart``."""

from ipu_emu.popart.builder.builder import Builder, defaultAiOnnxOpset
from ipu_emu.popart.builder.graph_transformer import GraphTransformer
from ipu_emu.popart.builder.opsets import (
    AiGraphcoreOpset1,
    AiOnnxMlOpset1,
    AiOnnxOpset6,
    AiOnnxOpset7,
    AiOnnxOpset8,
    AiOnnxOpset9,
    AiOnnxOpset10,
    AiOnnxOpset11,
)
from ipu_emu.popart.builder.supported_operations import (
    OpDefinition,
    OperatorIdentifier,
    getSupportedOperations,
    getSupportedOperationsDefinition,
    getUnsupportedOperations,
)
from ipu_emu.popart.devices.device_manager import (
    DeviceInfo,
    DeviceManager,
    syncPatternFromString,
    syncPatternToString,
)
from ipu_emu.popart.exceptions import (
    OutOfMemoryException,
    popart_exception,
    popart_internal_exception,
    popart_runtime_error,
    poplar_application_runtime_error,
    poplar_exception,
    poplar_recoverable_runtime_error,
    poplar_runtime_error,
    poplar_system_runtime_error,
    poplar_unknown_runtime_error,
    poplar_unrecoverable_runtime_error,
    poplibs_exception,
)
from ipu_emu.popart.logger import getLogger
from ipu_emu.popart.optimisers.optimiser import ClipNormSettings, Optimizer, OptimizerValue, OptimizerValueMap
from ipu_emu.popart.optimisers.optimisers import SGD, Adam, Adaptive, ConstSGD
from ipu_emu.popart.options.dataflow import AnchorReturnType, DataFlow
from ipu_emu.popart.options.input_settings import InputSettings, InputShapeInfo
from ipu_emu.popart.options.variable_settings import VariableSettings
from ipu_emu.popart.session.numerics_report import NumericsReport
from ipu_emu.popart.session.session import InferenceSession
from ipu_emu.popart.session.step_io import FeedStepIO, IStepIO, IWeightsIO, PyStepIO, PyStepIOCallback, PyWeightsIO
from ipu_emu.popart.session.training_session import TrainingSession
from ipu_emu.popart.types import prefix_functions
from ipu_emu.popart.types.debug_context import DebugContext, DebugInfo
from ipu_emu.popart.types.enums import (
    AdamMode,
    AdaptiveMode,
    AnchorReturnTypeId,
    CollectiveOperator,
    DataType,
    DeviceConnectionType,
    DeviceSelectionCriterion,
    DeviceType,
    ExchangeStrategy,
    InitType,
    IrSerializationFormat,
    RecomputeType,
    RecoveryAction,
    ReplicatedStreamMode,
    ScatterReduction,
    SGDAccumulatorAndMomentum,
    SyncPattern,
    TensorRemapType,
    VariableRetrievalMode,
    WeightDecayMode,
)
from ipu_emu.popart.types.prefix_functions import *  # noqa: F403 - the prefixes are listed once, in that module
from ipu_emu.popart.types.tensor_info import TensorInfo, getTensorInfo
from ipu_emu.popart.version import packageHash, versionNumber, versionString
from ipu_emu.session.options.option_enums import (
    CommGroupType,
    Instrumentation,
    MeanReductionStrategy,
    PatternsLevel,
    RecomputationType,
    ReductionType,
    ReplicatedTensorSharding,
    SyntheticDataMode,
    TensorStorage,
    TileSet,
    VirtualGraphMode,
)
from ipu_emu.session.options.option_groups import (
    AccumulateOuterFragmentSettings,
    AutodiffSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ExecutionPhaseSettings,
    ExperimentalSettings,
    ReplicatedCollectivesSettings,
)
from ipu_emu.session.options.patterns import Patterns
from ipu_emu.session.options.session_options import SessionOptions
from ipu_emu.session.options.tensor_location import CommGroup, TensorLocation, TensorLocationSettings
from ipu_emu.session.options.tuning_enums import (
    AccumulateOuterFragmentSchedule,
    AutodiffStitchStrategy,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    GradientTensorTrackingMethod,
    MergeVarUpdateType,
    SubgraphCopyingStrategy,
)

__all__ = [
    "SGD", "AccumulateOuterFragmentSchedule", "AccumulateOuterFragmentSettings", "Adam", "AdamMode", "Adaptive",
    "AdaptiveMode", "AiGraphcoreOpset1", "AiOnnxMlOpset1", "AiOnnxOpset6", "AiOnnxOpset7", "AiOnnxOpset8",
    "AiOnnxOpset9", "AiOnnxOpset10", "AiOnnxOpset11", "AnchorReturnType", "AnchorReturnTypeId", "AutodiffSettings",
    "AutodiffStitchStrategy", "AutomaticLossScalingSettings", "BatchSerializationBatchSchedule",
    "BatchSerializationMethod", "BatchSerializationSettings", "BatchSerializationTransformContext", "Builder",
    "ClipNormSettings", "CollectiveOperator", "CommGroup", "CommGroupType", "ConstSGD", "DataFlow", "DataType",
    "DebugContext", "DebugInfo", "DeviceConnectionType", "DeviceInfo", "DeviceManager", "DeviceSelectionCriterion",
    "DeviceType", "ExchangeStrategy", "ExecutionPhaseIOSchedule", "ExecutionPhaseSchedule", "ExecutionPhaseSettings",
    "ExperimentalSettings", "FeedStepIO", "GradientTensorTrackingMethod", "GraphTransformer", "IStepIO", "IWeightsIO",
    "InferenceSession", "InitType", "InputSettings", "InputShapeInfo", "Instrumentation", "IrSerializationFormat",
    "MeanReductionStrategy", "MergeVarUpdateType", "NumericsReport", "OpDefinition", "OperatorIdentifier",
    "Optimizer", "OptimizerValue", "OptimizerValueMap", "OutOfMemoryException", "Patterns", "PatternsLevel",
    "PyStepIO", "PyStepIOCallback", "PyWeightsIO", "RecomputationType", "RecomputeType", "RecoveryAction",
    "ReductionType", "ReplicatedCollectivesSettings", "ReplicatedStreamMode", "ReplicatedTensorSharding",
    "SGDAccumulatorAndMomentum", "ScatterReduction", "SessionOptions", "SubgraphCopyingStrategy", "SyncPattern",
    "SyntheticDataMode", "TensorInfo", "TensorLocation", "TensorLocationSettings", "TensorRemapType", "TensorStorage",
    "TileSet", "TrainingSession", "VariableRetrievalMode", "VariableSettings", "VirtualGraphMode", "WeightDecayMode",
    "defaultAiOnnxOpset", "getLogger", "getSupportedOperations", "getSupportedOperationsDefinition", "getTensorInfo",
    "getUnsupportedOperations", "packageHash", "popart_exception", "popart_internal_exception",
    "popart_runtime_error", "poplar_application_runtime_error", "poplar_exception",
    "poplar_recoverable_runtime_error", "poplar_runtime_error", "poplar_system_runtime_error",
    "poplar_unknown_runtime_error", "poplar_unrecoverable_runtime_error", "poplibs_exception",
    "syncPatternFromString", "syncPatternToString", "versionNumber", "versionString",
]  # fmt: skip
__all__ += prefix_functions.__all__
