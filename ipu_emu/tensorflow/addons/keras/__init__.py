"""Keras addons: layers and optimisers of ``ipu_tensorflow_addons.keras``."""

from ipu_emu.tensorflow.addons.keras import layers, optimizers

__all__ = ["layers", "optimizers"]
