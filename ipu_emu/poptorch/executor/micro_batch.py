"""Micro-batch: the part of the inputs of a call that the module sees once."""

from __future__ import annotations

import torch

from ipu_emu.poptorch.options.options import Options

__all__ = ["first_micro_batch"]


def first_micro_batch(tensor: torch.Tensor, options: Options) -> torch.Tensor:
    """Return the first micro-batch of an input; raise AssertionError if it does not hold D A R / G of them."""
    batches = options.batches
    if not tensor.dim():
        if batches != 1:
            raise AssertionError(
                f"Invalid batch dimension: a 0-dimensional input needs one micro-batch per call, not {batches}"
            )
        return tensor
    if tensor.shape[0] % batches:
        o = options
        raise AssertionError(
            f"Invalid batch dimension: In the input {tuple(tensor.shape)}, the batch dimension "
            f"({tensor.shape[0]}) must be a multiple of Options.deviceIterations({o.device_iterations}) * "
            f"(Options.replicationFactor({o.replication_factor}) / inputGroupSize({o.input_group_size})) * "
            f"Options.Training.gradientAccumulation({o.Training.gradient_accumulation}) = {batches} because it "
            "is used to calculate the size of the micro-batch that the model sees"
        )
    return tensor[: tensor.shape[0] // batches]
