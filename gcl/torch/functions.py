"""Functions: what programs call on a process group of gcl beside the functions of ``torch.distributed``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import torch
from torch.distributed import GroupMember, ProcessGroup

from gcl.errors import ArgumentError
from gcl.torch.process_group import GclProcessGroup

__all__ = ["empty", "group_of", "monitored_barrier"]


def group_of(asked: ProcessGroup | None) -> GclProcessGroup:
    """The group ``asked`` for, or the default group; raise ArgumentError if it is not of gcl."""
    found = asked if asked is not None else GroupMember.WORLD
    if not isinstance(found, GclProcessGroup):
        raise ArgumentError(
            f'the process group {found!r} is not of the back end gcl; call init_process_group("gcl"), or pass a '
            "group that was made with it"
        )
    return found


def empty(
    *size: int | Sequence[int], dtype: torch.dtype | None = None, group: ProcessGroup | None = None
) -> torch.Tensor:
    """As ``torch.empty``, in memory that the ranks of the host share: collectives of ``group`` need not copy it."""
    return group_of(group).empty(
        torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size), dtype
    )


def monitored_barrier(
    group: ProcessGroup | None = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """As ``torch.distributed.monitored_barrier``, which refuses all back ends but gloo by their name."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    group_of(group).monitored_barrier(timeout, wait_all_ranks)
