"""profiling: trace points of programs, which are accepted and not kept."""

from ipu_emu.poptorch.system import Channel

__all__ = ["Channel"]
