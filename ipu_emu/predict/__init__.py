"""predict: what a Pod would do with a job, by formulas and a calibration; nothing is compiled."""

from ipu_emu.predict.layer_parameters import (
    batch_norm,
    convolution,
    dense,
    embedding,
    encoder_layer,
    layer_norm,
)
from ipu_emu.predict.variable_memory import OPTIMISER_STATES, Variables, ipus_needed, of_model

__all__ = [
    "OPTIMISER_STATES",
    "Variables",
    "batch_norm",
    "convolution",
    "dense",
    "embedding",
    "encoder_layer",
    "ipus_needed",
    "layer_norm",
    "of_model",
]
