"""User warning: a warning that names the line of the user's program, however deep in these packages it arises."""

from __future__ import annotations

import sys
import warnings

_OWN = ("ipu_emu", "gcl", "popdist_py", "poprun_py")


def warn_user(text: str) -> None:
    """Warn of ``text`` at the line of the first caller outside of these packages."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OWN:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
