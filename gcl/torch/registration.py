"""Registration: makes gcl known to PyTorch as a back end, and makes its process groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
from torch.distributed import Backend, PrefixStore, Store

from gcl.connect import host_name, process_namespace
from gcl.core.argument_checks import check_whole
from gcl.errors import ArgumentError
from gcl.torch.calls import Calls
from gcl.torch.collective_calls import CollectiveCalls
from gcl.torch.one_host.host_group import HostGroup
from gcl.torch.process_group import GclProcessGroup
from gcl.torch.several_hosts.gloo_transport import GlooTransport
from gcl.torch.several_hosts.host_transport import HostTransport
from gcl.torch.several_hosts.two_levels import SeveralHosts
from gcl.torch.store_all_gather import StoreAllGather, in_mpi_job
from gcl.torch.work import GclWork
from gcl.transport.memory.segment import DEFAULT_BYTES

_SKIP = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)  # also what they call


def _leave_untraced(*classes: type) -> None:
    """Let torch.compile run the methods of ``classes`` as they are, instead of compiling them.

    PyTorch calls them from C++ in the middle of compiled functions. Unlike ``torch.compiler.disable``, this neither
    puts a frame between nor imports the compiler, which takes seconds.
    """
    for owner in classes:
        for member in vars(owner).values():
            if isinstance(member, FunctionType):
                set_code_exec_strategy(member.__code__, _SKIP)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of ``init_process_group(pg_options=...)``.

    ``segment_bytes``: address space for shared tensors, not the memory in use. ``host`` (default: detected): the name
    of this rank's host; ranks with different names do not share memory.
    """

    segment_bytes: int = DEFAULT_BYTES
    host: str | None = None


def register() -> None:
    """Register the back end "gcl" of ``torch.distributed``, again if PyTorch has dropped it."""
    _leave_untraced(Calls, CollectiveCalls, GclProcessGroup, GclWork)
    if "GCL" not in Backend._plugins:
        Backend.register_backend("gcl", _make, extended_api=True, devices=["cpu"])


def _make(request: Any, options: Any) -> GclProcessGroup:
    """Create the process group that PyTorch requests; called on all of its ranks."""
    options = Options() if options is None else options
    if not isinstance(options, Options):
        raise ArgumentError(f"pg_options={options!r} is not valid; give gcl.torch.Options(...)")
    check_whole(options.segment_bytes, "segment_bytes", 1)
    timeout = request.timeout.total_seconds()
    rank, store = request.group_rank, request.store
    members = request.global_ranks_in_group or range(request.group_size)
    gather = StoreAllGather(store, rank, request.group_size, timeout)
    host = options.host or f"{host_name()} {process_namespace()}"  # containers of one host cannot reach each other
    hosts = _hosts(gather.all_gather(host.encode()))
    here = next(ranks for ranks in hosts if rank in ranks)

    def all_gather_here(data: bytes) -> list[bytes]:
        everyone = gather.all_gather(data)
        return [everyone[peer] for peer in here]

    inner = HostGroup(
        rank=here.index(rank),
        names=[f"rank {members[peer]}" for peer in here],
        all_gather=all_gather_here,
        timeout=timeout,
        segment_bytes=options.segment_bytes,
    )
    group: HostGroup | SeveralHosts = inner
    if len(hosts) > 1:
        group = _between(hosts, rank, inner, _transports(gather, store, rank, timeout))
    return GclProcessGroup(store, group, timeout)


def _hosts(names: list[bytes]) -> list[list[int]]:
    """The ranks of each host, in the order of their first ranks."""
    return [[rank for rank, name in enumerate(names) if name == host] for host in dict.fromkeys(names)]


def _between(
    hosts: list[list[int]], rank: int, inner: HostGroup, transport: Callable[[str, list[int]], HostTransport]
) -> SeveralHosts:
    """Join the hosts by transports: all ranks, and those at each position if the hosts are alike."""
    in_order = [rank for ranks in hosts for rank in ranks]
    everyone = transport("everyone", sorted(in_order))
    size = len(hosts[0])
    column = None
    if in_order == sorted(in_order) and size & (size - 1) == 0 and all(len(ranks) == size for ranks in hosts):
        column = transport(f"column {inner.rank}", [ranks[inner.rank] for ranks in hosts])
    return SeveralHosts(rank, hosts, inner, everyone, column)


def _transports(
    gather: StoreAllGather, store: Store, rank: int, timeout: float
) -> Callable[[str, list[int]], HostTransport]:
    """Return a function that creates a transport between some ranks: MPI in a job of MPI, else gloo."""
    world = [-1]
    if in_mpi_job(store):
        from gcl.torch.several_hosts.mpi_transport import MpiTransport
        from gcl.transport.mpi.process_subset import world_rank

        world = [int(data) for data in gather.all_gather(str(world_rank()).encode())]
    if min(world) >= 0:
        return lambda _, members: MpiTransport([world[member] for member in members], timeout)
    return lambda name, members: GlooTransport(
        PrefixStore(f"{name}/", store), members.index(rank), len(members), timeout
    )
