"""PopDist strategy, by the place that it had in early releases."""

from ipu_emu.tensorflow.api.distributed.popdist_strategy import PopDistStrategy

__all__ = ["PopDistStrategy"]
