"""Functions: functions for process groups of gcl, in addition to those of ``torch.distributed``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import GroupMember, ProcessGroup

from gcl.errors import ArgumentError
from gcl.torch.process_group import GclProcessGroup


def group_of(requested: ProcessGroup | None) -> GclProcessGroup:
    """The group ``requested``, or the default group; raise ArgumentError if it is not of gcl."""
    group = requested if requested is not None else GroupMember.WORLD
    if not isinstance(group, GclProcessGroup):
        raise ArgumentError(
            f'the process group {group!r} is not of the back end gcl; call init_process_group("gcl"), or pass a '
            "group that was made with it"
        )
    return group


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
    """As ``torch.distributed.monitored_barrier``, which only accepts the back end gloo."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    group_of(group).monitored_barrier(timeout, wait_all_ranks)


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: Sequence[Sequence[int]] = (),
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> ProcessGroup | None:
    """As ``torch.distributed.split_group``, which PyTorch only supports with an accelerator.

    Divide ``parent_pg`` (default: all ranks) into groups, each a list of ranks of the parent; all ranks of the parent
    call it with the same lists. The group of this rank, None if no list has it.
    """
    parent = group_of(parent_pg)
    _check_split(split_ranks, parent.size())
    mine = next((sorted(ranks) for ranks in split_ranks if parent.rank() in ranks), None)
    if mine is None:
        return None
    members = dist.get_process_group_ranks(parent)
    return dist.new_group(
        [members[rank] for rank in mine],
        timeout,
        dist.get_backend(parent),
        pg_options,
        use_local_synchronization=True,
        group_desc=group_desc,
    )


def _check_split(split_ranks: Sequence[Sequence[int]], size: int) -> None:
    """Raise ArgumentError unless every group has ranks, and no rank is in two."""
    ranks = [rank for group in split_ranks for rank in group]
    if not split_ranks or not all(split_ranks):
        raise ArgumentError(
            f"split_ranks={split_ranks!r} has no group, or an empty one; list the ranks of each group"
        )
    wrong = sorted({rank for rank in ranks if not 0 <= rank < size or ranks.count(rank) > 1})
    if wrong:
        raise ArgumentError(
            f"split_ranks={split_ranks!r}: {', '.join(map(str, wrong))} is in two groups, or no rank of the parent; "
            f"use each of 0 to {size - 1} at most once"
        )
