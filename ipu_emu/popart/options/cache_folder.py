"""Cache folder: where a session saves its executables, from the environment or its options.

POPDIST_EXECUTABLE_CACHE_PATH    set by the launcher
POPXL_CACHE_DIR                  else
POPART_CACHE_DIR                 else
enableEngineCaching, cachePath   else, the options of the session
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ipu_emu.popart.options.session_options import SessionOptions
from popdist_py.environment import EXECUTABLE_CACHE_PATH

__all__ = ["cache_folder"]

_VARIABLES = (EXECUTABLE_CACHE_PATH, "POPXL_CACHE_DIR", "POPART_CACHE_DIR")


def cache_folder(options: SessionOptions, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the folder, or None if executables are not saved."""
    for name in _VARIABLES:
        if environment.get(name):
            return environment[name]
    return options.cachePath if options.enableEngineCaching else None
