"""Shards: they equal those of gcl's balanced reorder, and their collectives are merged."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import gcl
from ipu_emu import popart
from ipu_emu.graph import Shards
from ipu_emu.program.instructions import ShardCollectives, leaves
from tests.ipu_emu.helpers.pipelined_models import KEPT, OFF, ON, PIPELINE, SHARED, Tower, located

ADAM = popart.Adam({"defaultLearningRate": (0.01, False), "defaultWeightDecay": (0.1, True)})
STATES = KEPT["states shared"]
TILES = 1472
#: Weights of a tower of three stages.
WEIGHTS = 12


def balanced(elements: int, replicas: int, line: int) -> gcl.HostRearrangement:
    """The arrangement of a tensor that is spread evenly over the tiles, in lines for each replica."""
    tile = line * replicas * max(1, -(-elements // (TILES * line * replicas)))
    sizes = [min(tile, elements - start) for start in range(0, elements, tile)]
    return gcl.BalancedReorder.of_sizes(replicas, sizes, line).arrangement


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("elements", [0, 1, 17, 100, 5000, 200_000])
def test_shards_are_arranged_as_in_gcl(elements: int, replicas: int) -> None:
    value = np.arange(elements, dtype=np.float32)
    shards, want = Shards.of((elements,), 4, (1, replicas), None), balanced(elements, replicas, 16)
    rows = np.stack([shards.cut(value, replica, replicas) for replica in range(replicas)])
    np.testing.assert_array_equal(rows, want.shards(value))
    np.testing.assert_array_equal(shards.join(rows), want.undo(rows.reshape(-1)))
    assert len(shards.strided_pieces(0)) <= 2  # one copy of all whole tiles, one of the last


def test_a_large_tensor_is_spread_over_all_tiles() -> None:
    shards = Shards.of((TILES * 64 * 3,), 4, (1, 4), None)
    np.testing.assert_array_equal(shards.cut(np.arange(TILES * 64 * 3), 1, 4)[:96:48], [48, 240])


def exchanges(**values: object) -> list[ShardCollectives]:
    session = Tower(3).session(R=2, optimizer=ADAM, **STATES, **values)
    return [leaf for leaf in leaves(session.executable.program) if isinstance(leaf, ShardCollectives)]


def test_a_bucket_is_one_collective() -> None:
    scatter, gather = exchanges(gclOptions={"maximum_reduce_many_buffer_size": "1000000"})
    assert (scatter.ops[0].type, gather.ops[0].type) == ("ReduceScatterGradient", "AllGatherWeight")
    assert len(scatter.ops) == len(gather.ops) == WEIGHTS


def test_a_bucket_ends_at_its_limit() -> None:
    alone = exchanges(gclOptions={"maximum_reduce_many_buffer_size": "1"})
    assert [len(bucket.ops) for bucket in alone] == [1] * 2 * WEIGHTS
    assert 2 < len(exchanges()) < 2 * WEIGHTS


@pytest.mark.parametrize(
    "how", [{}, {"A": 4, "autoRecomputation": popart.RecomputationType.Standard}, {"A": 4, **PIPELINE}]
)
@pytest.mark.parametrize("where", [ON, OFF])
def test_shared_weights_are_gathered_together(where: popart.TensorStorage, how: dict[str, object]) -> None:
    weights, bucket = (
        located(where, SHARED, "weight", "optimizerState"),
        {"maximum_reduce_many_buffer_size": "1000000"},
    )
    session = Tower(2).session(R=2, gclOptions=bucket, **weights, **how)
    exchanged = [leaf for leaf in leaves(session.executable.program) if isinstance(leaf, ShardCollectives)]
    gathered = [len(leaf.ops) for leaf in exchanged if leaf.ops[0].type == "AllGatherShards"]
    once_more = 3 * ("autoRecomputation" in how)  # those that repeated ops read
    assert gathered == ([4, 4, 2, 1] if "enablePipelining" in how else [8, 3 + once_more])
    A = int(str(how.get("A", 1)))
    plain = Tower(2).trained(R=2, **how)
    same = Tower(2).run(session, A=A, R=2)
    for id in plain:
        np.testing.assert_array_equal(same[id], plain[id], err_msg=id)


MEAN: dict[str, object] = {
    "accumulationAndReplicationReductionType": popart.ReductionType.Mean,
    "meanAccumulationAndReplicationReductionStrategy": popart.MeanReductionStrategy.Running,
}


SPECIAL: list[dict[str, object]] = [{}, {"A": 3}, {"A": 2, **MEAN}, {"A": 4, **PIPELINE}]
GROUPS = [(4, 2), (6, 2), (6, 3)]
#: Every special case with the first groups, and the others of the product with --full.
PAIRS = [
    pytest.param(R, size, special, marks=[pytest.mark.full] if at and index else [], id=f"{R} in {size}, {name}")
    for index, (R, size) in enumerate(GROUPS)
    for at, (name, special) in enumerate(zip(("plain", "A=3", "mean", "pipeline"), SPECIAL, strict=True))
]


@pytest.mark.parametrize(("R", "size", "special"), PAIRS)
def test_pairs_scatter_and_then_sum_what_they_share(R: int, size: int, special: dict[str, object]) -> None:
    """Three replicas are no subtree of the tree in which six are summed, so gradients are reduced as a whole."""
    group = popart.CommGroup(popart.CommGroupType.Consecutive, size)
    location = popart.TensorLocation(popart.TensorStorage.OnChip, SHARED, group)
    pairs = {"optimizerStateTensorLocationSettings": popart.TensorLocationSettings(location, 0, 0)}
    tower, values = Tower(2), {"R": R, "optimizer": ADAM, **special}
    session = tower.session(**values, **pairs)
    ops = [op for leaf in leaves(session.executable.program) if isinstance(leaf, ShardCollectives) for op in leaf.ops]
    scattered = [op for op in ops if op.type == "ReduceScatterGradient"]
    assert [op.attributes["between"] for op in scattered] == [(2, R // 2)] * (8 if size == 2 else 0)
    assert any(region.startswith("bucket:FLOAT") for region in session.executable.plan.sizes) == (size == 3)
    plain, shared = (Tower(2).trained(steps=2, **values, **more) for more in ({}, pairs))
    for id in plain:
        np.testing.assert_array_equal(shared[id], plain[id], err_msg=id)


@pytest.mark.parametrize("special", [{}, {"A": 2}])
def test_no_bit_differs_in_one_bucket(special: dict[str, object]) -> None:
    bucket = {"gclOptions": {"maximum_reduce_many_buffer_size": "1000000"}}
    where = located(OFF, SHARED, "weight", "optimizerState", "accumulator")
    plain = Tower(2).trained(steps=2, R=4, optimizer=ADAM, **special)
    warning = pytest.warns(match="Accumulators of gradients stay whole")
    for values, told in ((STATES, nullcontext()), (where, warning)):
        with told:
            weights = Tower(2).trained(steps=2, R=4, optimizer=ADAM, **values, **bucket, **special)
        assert weights.keys() == plain.keys()
        for id in plain:
            np.testing.assert_array_equal(weights[id], plain[id], err_msg=id)
