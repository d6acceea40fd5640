"""tensorflow: the arguments, errors and schedules of TensorFlow's pipeline call for the IPU, without TensorFlow.

    from ipu_emu.hostio import OutfeedQueue
    from ipu_emu.tensorflow import PipelineCall, PipelineSchedule, StageFunction

    stages = [StageFunction("encode", variables=("w",)), StageFunction("decode", outputs=("loss",))]
    call = PipelineCall(stages, 8, optimizer_function=sgd, outfeed_queue=OutfeedQueue())
    slots = list(call.slots())

The arguments have TensorFlow's names and defaults, and errors have TensorFlow's wording.
"""

from ipu_emu.tensorflow.pipelining.argument_checks import check_program, check_shards
from ipu_emu.tensorflow.pipelining.pipeline_arguments import PipelineStageOptions, StageFunction
from ipu_emu.tensorflow.pipelining.pipeline_call import (
    PipelineCall,
    PipelineSchedule,
    RecomputationMode,
    ReductionMethod,
)

__all__ = [
    "PipelineCall",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "ReductionMethod",
    "StageFunction",
    "check_program",
    "check_shards",
]
