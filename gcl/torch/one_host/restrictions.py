"""Restrictions: features that shared memory needs and a container may forbid, and the messages about them.

process_vm_readv forbidden       copies take one more step: a warning when the group is made
/dev/shm too small, or missing   ddp_hook copies DDP's buckets: a warning at the first bucket that does not fit
memory cannot be shared at all   an error when the group is made
address space is limited         the same, which names the option for less of it
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from gcl.errors import TransportError

_SHARED_MEMORY = "/dev/shm"
_MIB = 1 << 20
#: Advice of the error about address space that cannot be reserved.
_LESS_SPACE = "connect with a smaller segment_bytes"


@contextmanager
def shares_memory() -> Iterator[None]:
    """Add advice for PyTorch's programs to a TransportError in the block."""
    try:
        yield
    except TransportError as error:
        reason = str(error).removesuffix("; use transport='mpi'")
        what, separator, _ = reason.partition(_LESS_SPACE)
        if separator:
            advice = f"{what}pass pg_options=gcl.torch.Options(segment_bytes=...) with less"
        else:
            advice = f"{reason}; let them read each other's /proc (one user, in a container --cap-add=SYS_PTRACE)"
        raise TransportError(
            f"gcl.torch cannot share memory between the processes of this host: {advice}, or call "
            'init_process_group("gloo")'
        ) from error


def warn_of_copies() -> None:
    """Warn that the kernel may not copy between processes; Python shows the same warning once."""
    warnings.warn(
        "gcl.torch: this system forbids process_vm_readv, so large tensors in lists, of uneven sizes and in messages "
        "are copied once more; in a container, start it with --cap-add=SYS_PTRACE",
        RuntimeWarning,
        stacklevel=2,
    )


def shared_memory_left() -> int | None:
    """Free bytes of named shared memory; None if there is none.

    Containers often have 64 MiB, and writing beyond that kills the process.
    """
    try:
        file_system = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return None
    return file_system.f_bavail * file_system.f_frsize


def warn_of_small_shared_memory(wanted: int) -> None:
    """Warn that DDP's buckets of ``wanted`` bytes are not shared; Python shows the same warning once."""
    left = shared_memory_left()
    state = "is missing" if left is None else f"has {left // _MIB} MiB left"
    warnings.warn(
        f"gcl.torch: {_SHARED_MEMORY} {state}, but ddp_hook moves a bucket of all ranks there, which needs "
        f"{-(-wanted // _MIB)} MiB, so buckets are copied; in a container, start it with --shm-size=2g or more",
        RuntimeWarning,
        stacklevel=2,
    )
