"""framework: the pipeline call of the IPU's TensorFlow, as far as it can be told without TensorFlow.

    from ipu_emu.tensorflow import OutfeedQueue, PipelineCall, PipelineSchedule, StageFunction

    stages = [StageFunction("encode", variables=("w",)), StageFunction("decode", outputs=("loss",))]
    call = PipelineCall(stages, 8, optimizer_function=sgd, outfeed_queue=OutfeedQueue())
    slots = list(call.slots())

The arguments have TensorFlow's names and defaults; what TensorFlow refuses is refused in its words.
"""

from ipu_emu.tensorflow.argument_checks import check_program, check_shards
from ipu_emu.tensorflow.pipeline_arguments import (
    InfeedQueue,
    OutfeedMode,
    OutfeedQueue,
    PipelineStageOptions,
    StageFunction,
)
from ipu_emu.tensorflow.pipeline_call import PipelineCall, PipelineSchedule, RecomputationMode, ReductionMethod

__all__ = [
    "InfeedQueue",
    "OutfeedMode",
    "OutfeedQueue",
    "PipelineCall",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "ReductionMethod",
    "StageFunction",
    "check_program",
    "check_shards",
]
