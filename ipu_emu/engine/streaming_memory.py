"""Streaming Memory: the memory of a machine beside its IPUs, for what they hold only while they use it.

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

__all__ = ["streaming_memory"]


def streaming_memory(nbytes: int, folder: str | Path | None = None) -> NDArray[np.uint8]:
    """Zeroed bytes; raise EmulatorError where there is no room for them."""
    if folder is None:
        return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
    try:
        with TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)
            return np.frombuffer(mmap.mmap(file.fileno(), nbytes), np.uint8)
    except OSError as error:
        raise EmulatorError(
            f"Streaming Memory of {nbytes:,} bytes cannot be had in {folder}: {error.strerror}. Choose another "
            "folder in engineOptions['streamingMemory.folder'], or leave it out"
        ) from None
