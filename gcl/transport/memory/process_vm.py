"""process_vm all-reduce: tensors that the other ranks cannot address are copied between processes by the kernel.

    meet     (done by the caller) every rank has announced where its tensors are
    work     each rank reads its slice of its peers' tensors, chunk by chunk, into a buffer that stays in the cache,
             combines it, and writes the result into every rank's tensor
    meet     every result is complete

Two meetings whatever the size, and no staging copy (process_vm_readv, process_vm_writev). Where the system forbids
that, ``gcl.transport.memory.chunked`` does the work.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gcl.core.prepared_call import BROKEN, DONE, WAITING
from gcl.core.request import Call
from gcl.kernels.copies import copy_bytes
from gcl.kernels.jit import bare, bare_part
from gcl.kernels.system_calls import process_vm_readv, process_vm_writev
from gcl.reduce.reduction import reduce_range
from gcl.transport.rendezvous.rank_table import (
    CallStage,
    Table,
    meet_again,
    met,
    own_input_of,
    own_output_of,
    process_of,
    slice_of,
    tables,
)

__all__ = ["buffers", "can_access_process", "process_vm_all_reduce", "transfer"]

_CHUNK = 65536  # bytes


def buffers(group_size: int) -> np.ndarray:
    """A chunk for each member of a group, one for the result, and room for vectors."""
    return np.empty((group_size + 2, _CHUNK // 8), np.int64)


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
    """Return whether an attempt to read 8 bytes of another process, and to write them back, succeeds."""
    word, vectors = np.zeros(1, np.int64), np.zeros(4, np.int64)
    return all(transfer(process, word.ctypes.data, address, 8, write, vectors) == 8 for write in (False, True))


@bare_part
def _reduce_slice(table: Any, call: Any, recipe: Any, scratch: Any, chunks: Any) -> bool:
    """Reduce this rank's slice; return whether every byte was copied, which fails if another process has ended."""
    copied = True
    replicas, size = table[Table.REPLICAS], table[Table.GROUP_SIZE]
    rank, item = table[Table.RANK], call[Call.ITEMSIZE]
    owners, locals_, members, nodes, outs = tables(table)
    nbytes, vectors = call[Call.COUNT] * item, chunks[size + 1]
    start, stop = slice_of(call[Call.COUNT], rank, table[Table.RANKS], item)
    total = chunks[size].ctypes.data
    for low in range(start * item, stop * item, _CHUNK):
        n = min(_CHUNK, stop * item - low)
        for first in range(0, replicas, size):
            for i in range(size):
                owner = owners[members[first + i]]
                at = own_input_of(table, owner) + locals_[members[first + i]] * nbytes + low
                nodes[i] = at if owner == rank else chunks[i].ctypes.data
                if owner != rank:
                    copied = transfer(process_of(table, owner), nodes[i], at, n, False, vectors) == n and copied
            outs[0] = total
            reduce_range(recipe, nodes, outs, 1, 0, n // item, scratch)
            for i in range(size):
                owner = owners[members[first + i]]
                at = own_output_of(table, owner) + locals_[members[first + i]] * nbytes + low
                if owner == rank:
                    copy_bytes(at, total, n)
                else:
                    copied = transfer(process_of(table, owner), total, at, n, True, vectors) == n and copied
    return copied


@bare
def process_vm_all_reduce(table: Any, call: Any, recipe: Any, scratch: Any, chunks: Any) -> int:
    """Continue an all-reduce that all ranks have entered; call again while it returns WAITING."""
    if table[Table.STAGE] == CallStage.INSIDE:
        if not _reduce_slice(table, call, recipe, scratch, chunks):
            return BROKEN
        meet_again(table)
        table[Table.STAGE] = CallStage.LEAVING
    return DONE if met(table) else WAITING
