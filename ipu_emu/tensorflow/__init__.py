"""tensorflow: programs of TensorFlow 1 and Keras for IPUs, which TensorFlow traces and the emulated IPUs run.

    api, keras, addons    what programs import: ``tensorflow.python.ipu``, ``tf.keras.ipu``, ``ipu_tensorflow_addons``
    install               makes them importable by these names, and patches TensorFlow
    trace                 records what a function of a program calls while TensorFlow builds its graph
    importer              translates the ops of such a graph to ops of the emulator
    run                   compiles a trace, one program for each of its sections, feeds the programs and runs them

Programs run with ``python -m ipu_emu.compat program.py``, or import ``ipu_emu.tensorflow.install`` before TensorFlow.
The names of this module need no TensorFlow: queues, and the arguments, errors and schedules of a pipeline call.

    from ipu_emu.tensorflow import OutfeedQueue, PipelineCall, StageFunction

    stages = [StageFunction("encode", variables=("w",)), StageFunction("decode", outputs=("loss",))]
    call = PipelineCall(stages, 8, optimizer_function=sgd, outfeed_queue=OutfeedQueue())
    slots = list(call.slots())
"""

from ipu_emu.tensorflow.run.argument_checks import check_program
from ipu_emu.tensorflow.run.configured_system import check_shards
from ipu_emu.tensorflow.run.feeds.queues import OutfeedMode, OutfeedQueue
from ipu_emu.tensorflow.run.pipeline_arguments import GradientAccumulationReductionMethod as ReductionMethod
from ipu_emu.tensorflow.run.pipeline_arguments import (
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    StageFunction,
)
from ipu_emu.tensorflow.run.pipeline_call import PipelineCall

__all__ = [
    "OutfeedMode", "OutfeedQueue", "PipelineCall", "PipelineSchedule", "PipelineStageOptions",
    "RecomputationMode", "ReductionMethod", "StageFunction", "check_program", "check_shards",
]  # fmt: skip
