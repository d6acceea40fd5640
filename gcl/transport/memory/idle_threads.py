"""stuck: whether a thread that waits in a collective is the only one of its process that could do anything."""

from __future__ import annotations

import sys
import threading
from types import FrameType

from gcl.core.handle import Handle, Runner

__all__ = ["is_stuck"]

#: What threads run which wait until another thread gives them work: module and function.
_IDLE = (("gcl.core.handle", "_work"), ("concurrent.futures.thread", "_worker"))
#: Frames from the innermost one of a thread that waits for a handle to ours.
_DEPTH = 4


def is_stuck() -> bool:
    """Say whether all other threads are idle, or wait until this one has made its collective."""
    me = threading.current_thread()
    others = [frame for ident, frame in sys._current_frames().items() if ident != me.ident]
    return all(_is_idle(frame) or _waits_for(me, frame) for frame in others)


def _is_idle(frame: FrameType) -> bool:
    return (frame.f_globals.get("__name__"), frame.f_code.co_name) in _IDLE


def _waits_for(thread: threading.Thread, frame: FrameType | None) -> bool:
    for _ in range(_DEPTH):
        if frame is None:
            return False
        mine = frame.f_locals.get("self")
        if frame.f_code is Handle.wait.__code__ and isinstance(mine, Handle):
            return mine.thread is thread and frame.f_locals.get("timeout") is None and not mine.done
        if frame.f_code is Runner.drain.__code__ and isinstance(mine, Runner):
            return mine.thread is thread
        frame = frame.f_back
    return False
