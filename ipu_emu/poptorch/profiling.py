"""profiling: trace points of programs, which are accepted but have no effect."""

from ipu_emu.poptorch.system import Channel

__all__ = ["Channel"]
