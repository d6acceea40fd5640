"""Process copies: copies by the kernel between processes (process_vm_readv), of memory that only one can address."""

from __future__ import annotations

from typing import Any

import numpy as np

from gcl.kernels.jit import bare
from gcl.kernels.system_calls import process_vm_readv, process_vm_writev


@bare
def transfer(process: int, here: int, there: int, n: int, write: bool, vectors: Any) -> Any:
    """Copy ``n`` bytes between this process and another; return how many were copied.

    ``vectors``: room for two struct iovec.
    """
    done = 0
    while done < n:
        vectors[0], vectors[1], vectors[2], vectors[3] = here + done, n - done, there + done, n - done
        at = vectors.ctypes.data
        copied = (
            process_vm_writev(process, at, 1, at + 16, 1, 0)
            if write
            else process_vm_readv(process, at, 1, at + 16, 1, 0)
        )
        if copied <= 0:
            break
        done += copied
    return done


def can_access_process(process: int, address: int) -> bool:
    """Whether an attempt to read 8 bytes of another process, and to write them back, succeeds."""
    word, vectors = np.zeros(1, np.int64), np.zeros(4, np.int64)
    return all(transfer(process, word.ctypes.data, address, 8, write, vectors) == 8 for write in (False, True))
