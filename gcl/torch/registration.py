"""Registration: makes gcl known to PyTorch as a back end, and makes its process groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.distributed import Backend

from gcl.core.argument_checks import check_whole
from gcl.errors import ArgumentError
from gcl.torch.host_group import HostGroup
from gcl.torch.process_group import GclProcessGroup
from gcl.torch.store_exchange import StoreExchange
from gcl.transport.memory.segment import DEFAULT_BYTES

__all__ = ["Options", "register"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What ``init_process_group(pg_options=...)`` takes: ``segment_bytes`` of address space for shared tensors."""

    segment_bytes: int = DEFAULT_BYTES


def register() -> None:
    """Make "gcl" a back end of ``torch.distributed``; again if PyTorch has forgotten it."""
    if "GCL" not in Backend._plugins:
        Backend.register_backend("gcl", _make, extended_api=True, devices=["cpu"])


def _make(asked: Any, options: Any) -> GclProcessGroup:
    """The process group that PyTorch asks for; called on all of its ranks."""
    options = Options() if options is None else options
    if not isinstance(options, Options):
        raise ArgumentError(f"pg_options={options!r} is not valid; give gcl.torch.Options(...)")
    check_whole(options.segment_bytes, "segment_bytes", 1)
    timeout = asked.timeout.total_seconds()
    members = asked.global_ranks_in_group or range(asked.group_size)
    exchange = StoreExchange(asked.store, asked.group_rank, asked.group_size, timeout)
    group = HostGroup(
        rank=asked.group_rank,
        names=[f"rank {member}" for member in members],
        all_gather=exchange.all_gather,
        timeout=timeout,
        segment_bytes=options.segment_bytes,
    )
    return GclProcessGroup(asked.store, group, timeout)
