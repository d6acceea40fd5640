"""Buckets: which gradients are adjacent, and the names of their memory."""

from __future__ import annotations

import pytest

from ipu_emu.graph import Place, Tensor, dtype_named
from ipu_emu.program.buckets import Bucket, buckets_of

FLOAT, HALF = dtype_named("FLOAT"), dtype_named("FLOAT16")


def gradient(name: str, elements: int, dtype: str = "FLOAT", group: tuple[int, int] | None = None) -> Tensor:
    return Tensor(name, dtype_named(dtype), (elements,), group=group)


@pytest.mark.parametrize(
    ("bucket", "region"),
    [
        (Bucket(FLOAT), "bucket:FLOAT"),
        (Bucket(FLOAT, None, 1), "bucket:FLOAT:all:1"),
        (Bucket(HALF, (2, 4)), "bucket:FLOAT16:2x4:0"),
        (Bucket(FLOAT, None, 0, 1), "bucket:FLOAT:all:0:1"),
        (Bucket(FLOAT, (1, 2), 3, 2), "bucket:FLOAT:1x2:3:2"),
    ],
)
def test_a_region_names_its_bucket(bucket: Bucket, region: str) -> None:
    assert bucket.region == region
    assert Bucket.named(region) == bucket
    assert Bucket.is_bucket(region)
    assert not Bucket.is_bucket("stash:FLOAT")


def test_the_buckets_of_a_group_share_a_workspace() -> None:
    assert Bucket(FLOAT, (2, 4), 3, 1).workspace == Bucket(HALF, (2, 4), 0, 1).workspace
    assert Bucket(FLOAT, (2, 4)).workspace != Bucket(FLOAT, (1, 2)).workspace
    assert Bucket(FLOAT).workspace != Bucket(FLOAT, ipu=1).workspace


def test_gradients_of_one_type_group_and_place_are_together() -> None:
    first, second = Place(0, 0), Place(1, 1)
    buckets = buckets_of(
        [
            (gradient("a", 3), first),
            (gradient("h", 3, "FLOAT16"), first),
            (gradient("g", 3, group=(1, 2)), first),
            (gradient("b", 5), first),
            (gradient("c", 5), second),
        ],
        None,
    )
    assert list(buckets) == ["a", "h", "g", "b", "c"]
    assert buckets["a"] == buckets["b"] == Bucket(FLOAT)
    assert (buckets["h"], buckets["g"]) == (Bucket(HALF), Bucket(FLOAT, (1, 2)))
    assert buckets["c"] == Bucket(FLOAT, ipu=1)


def test_stages_of_an_ipu_have_their_own_buckets() -> None:
    buckets = buckets_of([(gradient("a", 3), Place(0, 0)), (gradient("b", 3), Place(2, 0))], None)
    assert [buckets[name].number for name in "ab"] == [0, 1]


def test_a_bucket_holds_at_most_the_given_bytes_or_one_larger_gradient() -> None:
    sizes = {"a": 2, "b": 2, "c": 1, "d": 100, "e": 1}  # elements of 4 bytes
    buckets = buckets_of([(gradient(name, size), Place()) for name, size in sizes.items()], 16)
    assert [buckets[name].number for name in sizes] == [0, 0, 1, 2, 3]
