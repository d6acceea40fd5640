"""Warm processes: the commands that run Python programs in processes which have imported large modules already.

A process of its own takes most of its time to import PyTorch (2 s), TensorFlow (4 s) or the emulator (0.7 s).
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["EMULATOR", "warm_python"]

_WARM_PYTHON = Path(__file__).with_name("warm_python.py")
#: What most programs for the emulator import.
EMULATOR = ("popdist_py", "gcl", "ipu_emu.popart", "ipu_emu.compat", "ipu_emu.hostio", "ipu_emu.hostio.checkpoint")
#: What is read when modules are imported; no thread may be there when a process forks.
_SETTINGS = {
    "PYTHONPATH": str(_WARM_PYTHON.parents[2]),
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
    "TF_USE_LEGACY_KERAS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def warm_python(*modules: str) -> list[str]:
    """What stands for ``python`` in a command whose process is forked from one that has imported ``modules``."""
    return [sys.executable, "-I", "-S", str(_WARM_PYTHON), "run", _server(modules)[1]]


@cache
def _server(modules: tuple[str, ...]) -> tuple[subprocess.Popen[bytes], str]:
    """What forks those processes for this one, with the path of its socket; it ends when nothing can write to it."""
    path = f"{tempfile.mkdtemp(prefix='warm-')}/socket"
    command = [sys.executable, str(_WARM_PYTHON), "serve", path, *modules]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | _SETTINGS, start_new_session=True)
    atexit.register(shutil.rmtree, Path(path).parent)
    assert server.wait(100) == 0  # it goes on in the background
    return server, path
