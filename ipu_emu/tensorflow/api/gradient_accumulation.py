"""Gradient accumulation: how the gradients of mini-batches are combined."""

from ipu_emu.tensorflow.run.pipeline_arguments import GradientAccumulationReductionMethod

__all__ = ["GradientAccumulationReductionMethod"]
