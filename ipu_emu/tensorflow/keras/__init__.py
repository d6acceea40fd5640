"""keras: Keras models under an IPU strategy; the module ``tensorflow.python.ipu.keras``."""

from ipu_emu.tensorflow.keras.assignments import (
    FunctionalLayerPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
)
from ipu_emu.tensorflow.keras.options import ReplicatedMetricReductionMethod
from ipu_emu.tensorflow.keras.pipeline_stages import PipelineModel, PipelineSequential, PipelineStage

__all__ = [
    "FunctionalLayerPipelineStageAssignment", "ModelLayerPipelineStageAssignment", "PipelineModel",
    "PipelineSequential", "PipelineStage", "ReplicatedMetricReductionMethod",
    "SequentialLayerPipelineStageAssignment",
]  # fmt: skip
