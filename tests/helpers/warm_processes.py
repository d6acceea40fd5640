"""Warm processes: commands that run Python programs in processes forked after large imports.

A new process takes most of its time to import PyTorch (2 s), TensorFlow (4 s) or the emulator (0.7 s).
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

__all__ = ["EMULATOR", "PYTORCH_FACES", "WITH_GCL", "WITH_PYTORCH", "warm_python"]

_SERVER, _CLIENT = (Path(__file__).with_name(name) for name in ("warm_python.py", "warm_run.py"))
#: Modules that most programs for the emulator import.
EMULATOR = ("popdist_py", "gcl", "ipu_emu.popart", "ipu_emu.compat", "ipu_emu.hostio", "ipu_emu.hostio.checkpoint")
#: Modules for training with PyTorch, some of which (1 s) are imported when an optimiser steps.
PYTORCH_FACES = ("torch", "torch._dynamo", "ipu_emu.torch", "ipu_emu.poptorch", *EMULATOR)
#: Modules for instances that make collectives; pytest (0.08 s), because many of them share checks with tests.
WITH_GCL = ("gcl", "popdist_py", "pytest")
#: Modules for ranks of PyTorch, some of which are imported when DDP is created.
WITH_PYTORCH = ("torch.distributed", "torch._dynamo", "gcl.torch", "mpi4py", "pytest")
#: Variables that modules read when they are imported; a process must not have threads when it forks.
_SETTINGS = {
    "PYTHONPATH": str(_SERVER.parents[2]),
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
    "TF_USE_LEGACY_KERAS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def warm_python(*modules: str) -> list[str]:
    """The words in place of ``python`` in a command, to fork its process from one that has imported ``modules``."""
    return [sys.executable, "-I", "-S", str(_CLIENT), _server(modules)[0]]


@cache
def _server(modules: tuple[str, ...]) -> tuple[str, int]:
    """The socket of the server, for all workers of this test run, and a descriptor that keeps the server alive."""
    folder = Path(tempfile.gettempdir(), f"warm-{os.environ.get('PYTEST_XDIST_TESTRUNUID') or os.getpid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / sha256(" ".join(modules).encode()).hexdigest()[:16]
    alive = f"{path}.alive"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return str(path), os.open(alive, os.O_WRONLY | os.O_NONBLOCK)  # it fails if the server is gone
        os.mkfifo(alive)
        reading = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
        writing = os.open(alive, os.O_WRONLY)
        command = [sys.executable, str(_SERVER), str(path), *modules]
        server = subprocess.Popen(command, stdin=reading, env=os.environ | _SETTINGS, start_new_session=True)
        os.close(reading)
        assert server.wait(100) == 0  # the server continues in the background
        return str(path), writing
