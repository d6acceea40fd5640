"""PopDist strategy, in its module of early releases."""

from ipu_emu.tensorflow.api.distributed.popdist_strategy import PopDistStrategy

__all__ = ["PopDistStrategy"]
