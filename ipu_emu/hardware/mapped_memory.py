"""Mapped: Streaming Memory, that of a machine beside its IPUs, for what they hold only while they use it.

It is memory of the host, apart from that of the IPUs: pages that count when they are used first. In a ``folder`` it
is a file without a name, mapped into memory, which may be larger than the host's memory and ends with the process.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError

__all__ = ["mapped"]


def mapped(nbytes: int, folder: str | Path | None = None) -> NDArray[np.uint8]:
    """Zeroed bytes; raise EmulatorError where there is no room for them."""
    try:
        if folder is None:
            return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
        with TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)
            return np.frombuffer(mmap.mmap(file.fileno(), nbytes), np.uint8)
    except OSError as error:
        where, other = ("memory", "a") if folder is None else (folder, "another")
        raise EmulatorError(
            f"Streaming Memory of {nbytes:,} bytes cannot be had in {where}: {error.strerror}. Choose {other} "
            "folder in engineOptions['streamingMemory.folder'], or keep less off chip"
        ) from None
