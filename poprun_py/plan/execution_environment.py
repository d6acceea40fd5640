"""Execution: what the options of that group tell every instance through its environment."""

from __future__ import annotations

import os

from popdist_py.environment import EXECUTABLE_CACHE_PATH, OFFLINE_MODE
from poprun_py.options.option_table import LaunchOptions

__all__ = ["execution_environment"]


def execution_environment(options: LaunchOptions, *, cwd: str) -> dict[str, str]:
    """The folder for executables, where one was named, and whether devices are to be attached to."""
    told = {}
    if options.executable_cache_path:
        told[EXECUTABLE_CACHE_PATH] = os.path.normpath(os.path.join(cwd, options.executable_cache_path))
    if options.offline_mode:
        told[OFFLINE_MODE] = "1"
    return told
