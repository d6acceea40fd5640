"""predict: how a job would perform on a Pod, by formulas and a calibration, without compiling."""

from ipu_emu.predict.calibration.profile import Profile, load, shipped
from ipu_emu.predict.job import Job
from ipu_emu.predict.layer_parameters import (
    batch_norm,
    convolution,
    dense,
    embedding,
    encoder_layer,
    layer_norm,
)
from ipu_emu.predict.prediction import Prediction, predict
from ipu_emu.predict.search import Configurations, search, sweep
from ipu_emu.predict.variable_memory import Variables, ipus_needed, of_model

__all__ = [
    "Configurations", "Job", "Prediction", "Profile", "Variables", "batch_norm", "convolution",
    "dense", "embedding", "encoder_layer", "ipus_needed", "layer_norm", "load", "of_model", "predict", "search",
    "shipped", "sweep",
]  # fmt: skip
