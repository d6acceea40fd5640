"""Literal path: named methods over all transports give the interpreter's results, for any layout of replicas."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import gcl
from gcl.communicator import Communicator
from gcl.core.groups import Group
from gcl.core.request import Collective, Request
from gcl.errors import ArgumentError, CollectiveMismatch, PeerLost
from gcl.fabric.fabric import Fabric, LinkConfiguration, Topology
from gcl.literal.literal_path import LiteralCommunicator, LiteralPath, default_fabric
from gcl.scheduling.methods.method import METHODS, Method, method_chain
from gcl.scheduling.schedule import interpret, schedule
from tests.gcl.helpers.reference import same_bits
from tests.gcl.helpers.threads import errors_of, on_threads
from tests.helpers.mpi_jobs import MPICH, PROGRAMS, Mpi, every_mpi, run_job

TWIST = Fabric(8, 1, 1, Topology.TORUS, LinkConfiguration.BARLEY_TWIST)
ARITHMETIC = ("add", "mean", "mul", "min", "max", "square_add")
DTYPES = {
    np.float32: ARITHMETIC,
    np.float16: ARITHMETIC,
    ml_dtypes.bfloat16: ARITHMETIC,
    np.float64: ("add", "mean"),
    np.int32: ARITHMETIC,
    np.uint32: ("add", "max"),
    np.int8: ("add", "mean", "max"),
    np.uint8: ("add", "mean"),
    np.bool_: ("logical_and", "logical_or"),
}


def draw(replicas: int, n: int, dtype: type) -> np.ndarray:
    return (np.random.default_rng([replicas, n]).standard_normal((replicas, n)) * 3).astype(dtype)


def expected(
    collective: Collective, x: np.ndarray, fabric: Fabric, group: Group, chain: str, op: str = "add", root: int = 0
) -> np.ndarray:
    """The interpreter's result: of tensors in a wide dtype, rounded to theirs, where the operator rounds."""
    methods = method_chain(chain)
    plan = schedule(
        collective, fabric, x.shape[1], itemsize=x.itemsize, group=group, methods=methods, op=op, root=root
    )
    wide = x.dtype
    if op in ("add", "mean", "mul", "square_add"):
        wide = np.dtype(np.float32 if x.itemsize == 2 else np.int64 if x.dtype.kind in "iu" else x.dtype)
    with np.errstate(all="ignore"):
        return interpret(plan, x.astype(wide), op).astype(x.dtype)


def check(communicator: Communicator, x: np.ndarray, fabric: Fabric, chain: str, op: str) -> None:
    """Reductions of this rank's part of ``x`` against the interpreter."""
    group = communicator.group
    rows = slice(communicator.global_offset, communicator.global_offset + communicator.local_replicas)
    actual = communicator.all_reduce(x[rows].copy(), op)
    wanted = expected(Collective.ALL_REDUCE, x, fabric, group, chain, op)[rows]
    assert same_bits(actual, wanted), f"all_reduce {chain} {op} {x.dtype} {x.shape}"
    scatter = chain.split(",")[0]
    actual = communicator.reduce_scatter(x[rows].copy(), op)
    wanted = expected(Collective.REDUCE_SCATTER, x, fabric, group, scatter, op)[rows]
    assert same_bits(actual, wanted), f"reduce_scatter {chain} {op} {x.dtype} {x.shape}"


@pytest.mark.parametrize("counts", [(8,), (2, 6), (1,) * 8], ids=str)
@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_operator_and_dtype_is_the_interpreters_to_the_bit(
    method: Method, counts: tuple[int, ...], full: bool
) -> None:
    """With --full every operator for every distribution; else each for one of the two small ones."""

    def work(communicator: Communicator) -> None:
        for dtype, operators in DTYPES.items():
            # the correctness of operators does not depend on the number of threads
            mine = operators[:1] if len(counts) == 8 else operators if full else operators[len(counts) - 1 :: 2]
            for op in mine:
                check(communicator, draw(8, 37, dtype), TWIST, str(method), op)

    on_threads(counts, work, method=str(method), fabric=TWIST)


@pytest.mark.parametrize("n", [0, 1, 7, 1003])
@pytest.mark.parametrize(
    ("fabric", "chain"),
    [
        (Fabric(1), "clockwise_ring"),
        (Fabric(2), "meet_in_middle_ring"),
        (Fabric(3), "bidirectional_ring_pair"),
        (Fabric(4, 4, topology=Topology.TORUS), "meet_in_middle_ring"),
        (Fabric(16, domains=2), "bidirectional_ring_pair,anticlockwise_ring"),
        (Fabric(6, 2, 3), "auto,auto"),
    ],
    ids=str,
)
def test_fabrics_chains_and_sizes(fabric: Fabric, chain: str, n: int) -> None:
    first = max(1, fabric.replicas // 3)
    counts = (first, fabric.replicas - first) if fabric.replicas > 1 else (1,)
    x = draw(fabric.replicas, n, np.float32)
    on_threads(counts, lambda c: check(c, x, fabric, chain, "mean"), method=chain, fabric=fabric)


@pytest.mark.parametrize("group", [Group.consecutive(8, 4), Group.orthogonal(8, 4), Group.none(8)], ids=str)
def test_groups(group: Group) -> None:
    x, fabric = draw(8, 50, np.float32), Fabric(8)

    def work(communicator: Communicator) -> None:
        check(communicator, x, fabric, "meet_in_middle_ring", "add")

    on_threads((1, 2, 5), work, method="meet_in_middle_ring", fabric=fabric, group=group)


@pytest.mark.parametrize("dtype", [np.float16, np.bool_])
@pytest.mark.parametrize("method", ["auto", "bidirectional_ring_pair", "broadcast"])
def test_collectives_that_only_move(method: str, dtype: type) -> None:
    x = draw(4, 12, dtype)

    def work(communicator: Communicator) -> None:
        rows = slice(communicator.global_offset, communicator.global_offset + communicator.local_replicas)
        assert (communicator.all_gather(x[rows].copy()) == x).all()
        assert (communicator.broadcast(x[rows].copy(), 2) == x[2]).all()
        swapped = communicator.all_to_all(x[rows].reshape(-1, 4, 3).copy())
        assert (swapped == x.reshape(4, 4, 3).transpose(1, 0, 2)[rows]).all()
        everyone = communicator.shared((4, 12), dtype)
        assert (communicator.all_gather(x[rows].copy(), out=everyone) == x).all()
        own = np.stack([x[r].reshape(4, 3)[r] for r in range(4)])[rows]
        assert (communicator.reduce_scatter(x[rows].copy(), "local") == own).all()
        assert communicator.reduce_scatter(x[rows, :1].copy(), "local").shape[1] == 1
        communicator.barrier()

    on_threads((1, 3), work, method=method)


def test_lists_handles_and_in_place() -> None:
    x, y = draw(4, 10, np.float32), draw(4, 3, np.float32)
    fabric, method = Fabric(4), "bidirectional_ring_pair"

    def work(communicator: Communicator) -> None:
        rows = slice(communicator.global_offset, communicator.global_offset + communicator.local_replicas)
        shards = communicator.reduce_scatter_async([x[rows].copy(), y[rows].copy()]).wait(250)
        # fragment i of x, 3 wide, then fragment i of y, 2 wide as each direction needs an element
        parts = [np.pad(x, ((0, 0), (0, 2))).reshape(4, 4, 3), np.pad(y, ((0, 0), (0, 5))).reshape(4, 4, 2)]
        packed = np.concatenate(parts, axis=2).reshape(4, 20)
        together = expected(Collective.REDUCE_SCATTER, packed, fabric, communicator.group, method)[rows]
        assert same_bits(np.concatenate(shards, axis=1), together)
        sums = communicator.all_reduce([x[rows].copy(), y[rows].copy()])
        assert np.allclose(sums[1], y.sum(axis=0), rtol=1e-5)
        tensor = x[rows].copy()
        assert communicator.all_reduce(tensor, out=tensor) is tensor
        assert same_bits(tensor, expected(Collective.ALL_REDUCE, x, fabric, communicator.group, method)[rows])

    on_threads((2, 2), work, method=method)


def test_half_types_round_once() -> None:
    x = np.full((4, 4), 1.0, np.float16)
    x[0] = 2048  # 2048 + 1 is not a half, 2048 + 3 is nearest to 2052
    result = on_threads((2, 2), lambda c: c.all_reduce(x[:2] if c.global_offset == 0 else x[2:]), method="broadcast")
    assert all((rows == 2052).all() for rows in result)


def test_gcl_options_name_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCL_OPTIONS", '{"method": "quad_directional_ring"}')
    with pytest.raises(ArgumentError, match="it needs barley_twist"):
        gcl.connect(local_replicas=8)
    with gcl.connect(local_replicas=8, fabric=TWIST) as communicator:
        check(communicator, draw(8, 9, np.float32), TWIST, "quad_directional_ring", "add")
    with gcl.connect(local_replicas=8, method="auto") as communicator:
        assert type(communicator) is Communicator
    monkeypatch.setenv("GCL_OPTIONS", '{"metod": "auto"}')
    with pytest.raises(ArgumentError, match=r"'metod'.*method, .*useOptimisedLayout"):
        gcl.connect()


@pytest.mark.parametrize("own", ["auto", "clockwise_ring"])
def test_a_call_names_its_method(own: str) -> None:
    x, fabric = draw(4, 37, np.float32), Fabric(4)

    def work(communicator: Communicator) -> None:
        rows = slice(communicator.global_offset, communicator.global_offset + communicator.local_replicas)
        mine, group = x[rows].copy(), communicator.group
        plain = communicator.all_reduce(mine)
        for method in ("meet_in_middle_ring", "bidirectional_ring_pair,broadcast", "auto"):
            slow = communicator.all_reduce_async(mine, method=method)  # calls keep their order
            actual = communicator.all_reduce(mine, method=method)
            assert same_bits(slow.wait(250), actual)
            if method != "auto":
                assert same_bits(actual, expected(Collective.ALL_REDUCE, x, fabric, group, method)[rows])
                scatter = method.split(",")[0]
                shard = communicator.reduce_scatter(mine, method=scatter)
                assert same_bits(shard, expected(Collective.REDUCE_SCATTER, x, fabric, group, scatter)[rows])
        assert same_bits(communicator.all_reduce(mine), plain)
        everyone = communicator.shared((4, 37))
        assert (communicator.all_gather(mine, out=everyone, method="clockwise_ring") == x).all()
        packed = communicator.all_reduce([mine, mine], method="clockwise_ring")
        twice = expected(Collective.ALL_REDUCE, np.hstack([x, x]), fabric, group, "clockwise_ring")[rows]
        assert same_bits(np.hstack(packed), twice)

    on_threads((1, 3), work, method=own)


def test_ranks_that_name_different_methods_raise() -> None:
    def work(communicator: Communicator) -> None:
        method = "clockwise_ring" if communicator.global_offset == 0 else "broadcast"
        communicator.all_reduce(np.zeros((1, 4), np.float32), method=method)

    first, second = errors_of((1, 1), work)
    assert isinstance(first, CollectiveMismatch)
    assert str(first) == str(second)
    assert "all_reduce(add, 4 x float32) by clockwise_ring at" in str(first)
    assert "by broadcast at" in str(first)


def test_an_unknown_method_of_a_call() -> None:
    with gcl.connect() as communicator, pytest.raises(ArgumentError, match="method 'ring' is unknown; use"):
        communicator.all_reduce(np.zeros((1, 4), np.float32), method="ring")


@pytest.mark.parametrize(
    "options",
    [
        '{"method": "clockwise_ring", "maxBytesPerTile": 1}',
        '{"method": "bidirectional_ring_pair", "syncful": {"useOptimisedLayout": false}}',
        '{"method": "clockwise_ring", "syncful.useForwardingToSupportStridedGroups": true}',
    ],
)
def test_options_change_no_value(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCL_OPTIONS", options)
    x, fabric, method = draw(8, 5003, np.float32), Fabric(8), json.loads(options)["method"]
    group = Group(8, 2, 4)
    on_threads((3, 5), lambda c: check(c, x, fabric, method, "add"), group=group)


def test_real_collectives_run_the_programs_that_gcl_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCL_REAL_COLLECTIVES", "1")
    x = draw(4, 37, np.float32)
    with gcl.connect(local_replicas=4) as communicator:
        assert isinstance(communicator, LiteralCommunicator)
        check(communicator, x, Fabric(4), "meet_in_middle_ring", "add")
    with gcl.connect(local_replicas=4, method="auto") as communicator:
        assert type(communicator) is Communicator


def test_collectives_without_sync_are_reported_as_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCL_OPTIONS", '{"useSynclessCollectives": true}')
    with pytest.warns(FutureWarning, match="GCL deprecated it in 2.6 and removed it in 3.0"):
        gcl.connect().close()


def test_contradictions_are_reported_when_connecting() -> None:
    with pytest.raises(ArgumentError, match=r"'cloclwise'.*auto, clockwise_ring"):
        gcl.connect(method="cloclwise")
    with pytest.raises(ArgumentError, match=r"4 replicas.*communicator.*2"):
        gcl.connect(local_replicas=2, fabric=Fabric(4))
    with pytest.raises(ArgumentError, match="3 methods"):
        gcl.connect(local_replicas=2, method="auto,auto,auto")


def test_ranks_that_call_different_collectives_raise() -> None:
    def work(communicator: Communicator) -> None:
        x = np.zeros((1, 4), np.float32)
        if communicator.global_offset == 0:
            communicator.all_reduce(x)
        else:
            communicator.broadcast(x, 1)

    first, second = errors_of((1, 1), work, method="clockwise_ring")
    assert isinstance(first, CollectiveMismatch)
    assert str(first) == str(second)
    assert "called all_reduce(add, 4 x float32) by clockwise_ring at" in str(first)
    assert "test_literal_path.py" in str(first)


def test_waiting_ends_when_a_rank_leaves() -> None:
    def work(communicator: Communicator) -> None:
        x = np.zeros((1, 4), np.float32)
        if communicator.global_offset == 0:
            communicator.close()
        else:
            communicator.all_reduce(x)

    _, second = errors_of((1, 1), work, method="clockwise_ring")
    assert isinstance(second, PeerLost)


#: Every method between processes; hosts are simulated by names.
CHECKS = PROGRAMS / "gcl/literal/every_method.py"


@every_mpi
def test_every_method_between_processes(mpi: Mpi, tmp_path: Path) -> None:
    """Collectives through shared memory alone do not depend on the MPI."""
    ways = "shared_memory,mpi,hosts" if mpi is MPICH else "mpi"
    ended = run_job(CHECKS, tmp_path, ways, counts=(1, 3, 2, 2), mpi=mpi, timeout=250).succeeded()
    assert ended.out == ["all equal\n"] * 4


@pytest.mark.parametrize(("replicas", "domains"), [(1, 1), (64, 1), (65, 5), (67, 67), (128, 2)])
def test_the_default_fabric_has_the_fewest_domains_that_hold_the_replicas(replicas: int, domains: int) -> None:
    topology = Topology.TORUS if replicas == 64 * domains else Topology.MESH
    assert default_fabric(replicas) == Fabric(replicas, domains=domains, topology=topology)


@pytest.mark.parametrize(("ipus", "transfers"), [(1, 1), (2, 2)])
def test_the_tensors_of_a_list_travel_together_where_a_replica_is_one_ipu(
    ipus: int, transfers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = np.arange(40.0).reshape(4, 10), np.arange(12.0).reshape(4, 3)
    runs: list[Request] = []
    run = LiteralPath.run

    def counted(literal: LiteralPath, request: Request, *tensors: np.ndarray) -> None:
        runs.append(request)
        run(literal, request, *tensors)

    monkeypatch.setattr(LiteralPath, "run", counted)
    with gcl.connect(
        local_replicas=4, method="clockwise_ring", fabric=Fabric(4, ipus_per_replica=ipus)
    ) as communicator:
        alone = [communicator.reduce_scatter(tensor) for tensor in (x, y)]
        runs.clear()
        outs = [np.empty_like(shard) for shard in alone]
        assert communicator.reduce_scatter([x, y], out=outs) is outs
    assert len(runs) == transfers
    assert all((shard == wanted).all() for shard, wanted in zip(outs, alone, strict=True))
