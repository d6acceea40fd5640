"""The folder in which compiled kernels are kept between processes.

IPU_EMU_KERNEL_CACHE      a folder, or the empty text for none
XDG_CACHE_HOME            else poprun-py/kernels in it
~/.cache                  else poprun-py/kernels in it
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

__all__ = ["KERNEL_CACHE", "kernel_folder"]

KERNEL_CACHE = "IPU_EMU_KERNEL_CACHE"


def kernel_folder() -> Path | None:
    """A folder that can be written, or None where there is none: kernels are then compiled in every process."""
    named = os.environ.get(KERNEL_CACHE)
    if named is not None:
        return _writable(named) if named else None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return _writable(os.path.join(home, "poprun-py", "kernels"))


@cache
def _writable(folder: str) -> Path | None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return None
    return Path(folder) if os.access(folder, os.W_OK | os.X_OK) else None
