"""Every collective of PyTorch over gcl, in processes, against the same arithmetic in one process."""

import time

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402

from gcl.torch.reductions import combine_all  # noqa: E402
from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402

pytestmark = pytest.mark.torch

REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLES = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
MOVED = (*REALS, *WHOLES, *COMPLEX, torch.bool, torch.float8_e4m3fn, torch.uint16)
#: No element, one, an odd number, and more than are staged in the segment.
SIZES = (0, 1, 37, 70_001)
EVERY = [
    *((dtype, op) for dtype in REALS for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX")),
    *((dtype, op) for dtype in WHOLES for op in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")),
    *((dtype, op) for dtype in COMPLEX for op in ("SUM", "AVG")),
    *((torch.bool, op) for op in ("BAND", "BOR", "BXOR", "MIN", "MAX")),
]


def values(dtype, size, rank):
    """Small numbers that differ by rank, and of which all sums and products are exact."""
    numbers = torch.from_numpy(np.random.default_rng(7 * rank + size).integers(0, 3, size))
    return numbers.to(torch.float32).to(dtype) if dtype.itemsize == 1 else numbers.to(dtype)


def combined(tensors, op):
    """The tensors of all ranks, combined; complex ones as pairs of real numbers."""
    if tensors[0].dtype.is_complex:
        return torch.view_as_complex(combined([torch.view_as_real(tensor) for tensor in tensors], op))
    return combine_all(tensors, dist.ReduceOp(op)).to(tensors[0].dtype)


def same(x, y):
    return torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8)) if x.numel() else True


def reductions():
    """All-reduce, reduce, and reduce-scatter in its forms, of all operators and dtypes."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    wrong = []
    for dtype, name in EVERY:
        op = getattr(dist.ReduceOp, name)
        for size in SIZES:
            if size == SIZES[-1] and name not in ("SUM", "BXOR"):
                continue
            everyone = [values(dtype, size, r) for r in range(ranks)]
            wanted = combined(everyone, op)
            x = everyone[rank].clone()
            dist.all_reduce(x, op)
            y = everyone[rank].clone()
            dist.reduce(y, 1, op)
            parts = [values(dtype, size, 10 * rank + i) for i in range(ranks)]
            mine = combined([values(dtype, size, 10 * r + rank) for r in range(ranks)], op)
            lists, single = torch.empty_like(x), torch.empty_like(x)
            dist.reduce_scatter(lists, parts, op)
            dist.reduce_scatter_single(single, torch.cat(parts), op)
            checks = same(x, wanted), same(y, wanted if rank == 1 else everyone[rank]), same(lists, mine)
            if not all((*checks, same(single, mine))):
                wrong.append((dtype, name, size, *checks))
    return wrong


def moves():
    """All collectives that copy, of all dtypes."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    wrong = []
    for dtype in MOVED:
        for size in SIZES:
            x, everyone = values(dtype, size, rank), [values(dtype, size, r) for r in range(ranks)]
            outs = [torch.empty_like(x) for _ in everyone]
            dist.all_gather(outs, x)
            rows = torch.empty((ranks, size), dtype=dtype)
            dist.all_gather_single(rows, x)
            root = x.clone()
            dist.broadcast(root, 1)
            gathered = [torch.empty_like(x) for _ in everyone] if rank == 2 else None
            dist.gather(x, gathered, 2)
            scattered = torch.empty_like(x)
            dist.scatter(scattered, everyone if rank == 0 else None, 0)
            exchanged = [torch.empty_like(x) for _ in everyone]
            dist.all_to_all(exchanged, [values(dtype, size, 10 * rank + r) for r in range(ranks)])
            checks = (
                *map(same, outs, everyone),
                *map(same, rows, everyone),
                same(root, everyone[1]),
                rank != 2 or all(map(same, gathered, everyone)),
                same(scattered, x),
                *(same(exchanged[r], values(dtype, size, 10 * r + rank)) for r in range(ranks)),
            )
            if not all(checks):
                wrong.append((dtype, size, checks))
    return wrong


def other_forms():
    """Uneven sizes, views, lists, futures, objects, groups of some ranks."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    grid = torch.arange(12.0).reshape(3, 4) + rank
    dist.all_reduce(grid.t()[1:])
    rows = torch.full((rank + 1, 2), float(rank))
    uneven = [torch.empty(r + 1, 2) for r in range(ranks)]
    dist.all_to_all(uneven, [rows] * ranks)
    split = torch.empty(sum(range(1, ranks + 1)), 2)
    dist.all_to_all_single(split, torch.cat([rows] * ranks), list(range(1, ranks + 1)), [rank + 1] * ranks)
    floats, integers = torch.ones(3), torch.ones(5, dtype=torch.int32)
    with dist._coalescing_manager():
        dist.all_reduce(floats)
        dist.all_reduce(integers)
    works = [dist.all_reduce(torch.full((1000,), float(i)), async_op=True) for i in range(20)]
    chained = works[3].get_future().then(lambda future: future.value()[0][0].item() + 0.5)
    for work in reversed(works):
        work.wait()
    sums = [work.result()[0][0].item() for work in works]
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    pair = dist.new_group([0, 2])
    if rank in (0, 2):
        there = torch.tensor([float(rank)])
        dist.all_reduce(there, group=pair)
        assert there.item() == 2.0
    factor = torch.ones(4)
    dist.all_reduce(factor, dist._make_nccl_premul_sum(0.5))
    return (
        bool((grid[:, 1:] == (torch.arange(12.0).reshape(3, 4) * ranks + 3)[:, 1:]).all())
        and grid[0, 0].item() == rank,
        all((part == r).all() for r, part in enumerate(uneven)) and torch.equal(torch.cat(uneven), split),
        floats.tolist() == [3.0] * 3 and integers.tolist() == [3] * 5,
        sums == [3.0 * i for i in range(20)] and chained.wait() == 9.5,
        objects == [{"rank": r} for r in range(ranks)],
        factor.tolist() == [1.5] * 4,
    )


def in_callbacks():
    """Collectives in callbacks of futures, as communication hooks make them, while the program makes others."""
    rank, ranks = dist.get_rank(), dist.get_world_size()

    def again_twice(future):
        x = future.value()[0].clone()
        dist.all_reduce(x)
        return dist.all_reduce(x, async_op=True).get_future().wait()[0]

    if rank:
        dist.recv(torch.empty(1), 0)  # so that rank 0 sets its callbacks before the collectives can run
    begun = (dist.all_reduce(torch.full((1000,), float(i)), async_op=True) for i in range(3))
    futures = [work.get_future().then(again_twice) for work in begun]
    if rank == 0:
        for other in range(1, ranks):
            dist.send(torch.ones(1), other)
    dist.barrier()  # must not block callbacks
    return [(future.wait() == i * ranks**3).all().item() for i, future in enumerate(futures)]


def test_reductions_are_those_of_one_process_for_every_operator_and_dtype():
    assert run_ranks(3, reductions) == [[], [], []]


def test_copies_arrive_for_every_dtype():
    assert run_ranks(3, moves) == [[], [], []]


def test_uneven_sizes_views_lists_futures_objects_and_groups():
    assert run_ranks(3, other_forms) == [(True,) * 6] * 3


def streams():
    """Copies of chunked tensors, the last chunk odd; parts of all-to-all in equal and unequal rows."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    good = []
    for size in (1_400_001, 3_000_007):
        x = torch.arange(size, dtype=torch.int16) + rank
        gathered, root = torch.empty((ranks, size), dtype=torch.int16), x.clone()
        dist.all_gather_single(gathered, x)
        dist.broadcast(root, 1)
        parts = torch.stack([x + 10 * r for r in range(ranks)])
        back = torch.empty_like(parts)
        dist.all_to_all_single(back, parts)
        good += [bool((gathered[r] == x - rank + r).all()) for r in range(ranks)]
        good += [bool((back[r] == x - rank + r + 10 * rank).all()) for r in range(ranks)]
        good.append(bool((root == x - rank + 1).all()))
        for dtype in (torch.float32, torch.float16):
            values = [torch.arange(size * ranks).remainder(500 + r).to(dtype) for r in range(ranks)]
            mine = torch.empty(size, dtype=dtype)
            dist.reduce_scatter_single(mine, values[rank])
            good.append(same(mine, combined([row[rank * size :][:size] for row in values], dist.ReduceOp.SUM)))
    return all(good)


def test_callbacks_of_futures_may_make_collectives():
    assert run_ranks(3, in_callbacks) == [[True] * 3] * 3


@pytest.mark.parametrize("ranks", [2, 3])
def test_large_tensors_arrive_in_chunks(ranks):
    assert run_ranks(ranks, streams) == [True] * ranks


def exchanges_in_place():
    """All-to-all whose outputs are its inputs: whole, in a list, and in parts of given sizes."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    good = []
    for size in (12, 60_000, 1_200_000):
        rows = torch.arange(size, dtype=torch.float32)
        wanted = torch.cat([rows.chunk(ranks)[rank] + r for r in range(ranks)])
        for form in ("whole", "list", "sizes") * 3:
            x = rows + rank
            if form == "whole":
                dist.all_to_all_single(x, x)
            elif form == "list":
                dist.all_to_all(list(x.chunk(ranks)), list(x.chunk(ranks)))
            else:
                dist.all_to_all_single(x, x, [size // ranks] * ranks, [size // ranks] * ranks)
            good.append(same(x, wanted))
    return all(good)


@pytest.mark.parametrize("ranks", [2, 3])
def test_an_exchange_may_write_to_its_inputs(ranks):
    assert run_ranks(ranks, exchanges_in_place) == [True] * ranks


def negated():
    """An imaginary part that PyTorch negates only when it is read."""
    x = torch.tensor([1 + 2j]).conj().imag
    outs = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(outs, x)
    return x.is_neg() and x.is_contiguous(), [out.item() for out in outs]


def test_views_that_negate_are_read_by_their_elements():
    assert run_ranks(2, negated)[0] == (True, [-2.0, -2.0])


def means():
    """Of whole numbers: towards zero, for those that gcl and that PyTorch combines."""
    averages = []
    for dtype in WHOLES:
        x = torch.tensor([5, 5 if dtype is torch.uint8 else -5]).to(dtype) + dist.get_rank() % 2
        dist.all_reduce(x, dist.ReduceOp.AVG)
        averages.append(x.tolist())
    return averages


def test_means_of_whole_numbers_are_rounded_towards_zero():
    assert run_ranks(2, means)[0] == [[5, 5] if dtype is torch.uint8 else [5, -4] for dtype in WHOLES]


def refused():
    rank = dist.get_rank()
    said = []
    for call in (
        lambda: dist.all_reduce(torch.eye(2).to_sparse()),
        lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BXOR),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.float8_e4m3fn)),
        lambda: dist.all_reduce(torch.ones(2).to(torch.uint16), dist.ReduceOp.AVG),
        lambda: dist.all_reduce(torch.ones(2, device="meta")),
        lambda: dist.all_gather([torch.ones(2)] * 3, torch.ones(2)),
        lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 2], [2, 2]),
    ):
        try:
            call()
        except ValueError as error:
            said.append(str(error))
    x = torch.tensor([float(rank)])
    dist.all_reduce(x)
    return said, x.item()


def test_unsupported_calls_are_refused_by_name_and_the_next_one_works():
    for said, total in run_ranks(2, refused):
        assert total == 1.0
        sparse, bits, tiny, unsigned, device, number, splits = said
        assert "sparse tensor is not supported by gcl; pass tensor.to_dense()" in sparse
        assert "BXOR" in bits
        assert "float8" in tiny
        assert "AVG of torch.uint16; use a signed type" in unsigned
        assert "meta" in device
        assert "3 outputs for 2 ranks" in number
        assert "[1, 2] for 4 rows" in splits


def profiled():
    """The spans of gcl that a profiler has seen, and for how many milliseconds that of a late call."""
    from torch.profiler import profile

    with profile() as profiler:
        dist.all_reduce(torch.ones(3))
        dist.barrier()
        if dist.get_rank() == 1:
            time.sleep(0.2)
        work = dist.broadcast(torch.ones(3), 1, async_op=True)
        work.wait()
    spans = {event.key: event.cpu_time_total / 1e3 for event in profiler.key_averages() if "gcl:" in event.key}
    return sorted(spans), spans.get("gcl:broadcast", 0)


def test_a_profiler_sees_each_call_from_its_beginning_to_its_end():
    (spans, waited), (others, _) = run_ranks(2, profiled)
    assert spans == others == ["gcl:all_reduce", "gcl:barrier", "gcl:broadcast"]
    assert waited > 150
