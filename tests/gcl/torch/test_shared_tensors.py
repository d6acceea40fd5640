"""Tensors of gcl.torch.empty: other ranks read them in place, and get the same bits as from private ones."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402

import gcl.torch  # noqa: E402
from gcl.torch.one_host import offers  # noqa: E402
from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402

pytestmark = pytest.mark.torch

#: Elements of a part, which is chunked above 1 MiB: odd, so that the last chunk is odd.
PART = 300_007


def private(tensor):
    return tensor.clone()


def shared(tensor):
    """A copy in the segment, which does not start at the start of an allocated tensor."""
    room = gcl.torch.empty(tensor.numel() + 7, dtype=tensor.dtype)
    return room[5:-2].view(tensor.shape).copy_(tensor)


def results(placed, only=None):
    """The results of each large collective if its input was ``placed`` on the ranks ``only``, or on all."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = placed if only is None or rank in only else private
    generator = torch.Generator().manual_seed(rank)
    values = torch.randn(ranks, PART * 2, generator=generator)
    gathered, part, root = torch.empty(ranks, PART * 2), torch.empty(PART * 2), place(values[0])
    exchanged, lists = torch.empty_like(values), [torch.empty(PART * 2) for _ in range(ranks)]
    dist.all_gather_single(gathered, place(values[1]))
    dist.all_gather(lists, place(values[1]))
    dist.broadcast(root, 1)
    dist.all_to_all_single(exchanged, place(values))
    dist.reduce_scatter_single(part, place(values))
    halves = torch.empty(PART * 2, dtype=torch.bfloat16)
    dist.reduce_scatter_single(halves, place(values.bfloat16()), dist.ReduceOp.AVG)
    rows = [PART * (1 + r % 2) for r in range(ranks)]  # the number of elements that each rank gets
    uneven = torch.empty(rows[rank] * ranks)
    packed = place(torch.cat([row[:n] for row, n in zip(values, rows, strict=True)]))
    dist.all_to_all_single(uneven, packed, [rows[rank]] * ranks, rows)
    return [gathered, *lists, root, exchanged, part, halves.view(torch.int16), uneven]


def same_everywhere():
    wanted = results(private)
    outcomes = [results(shared), results(shared, only=(0,)), results(shared, only=(1,))]
    return [all(map(torch.equal, wanted, some)) for some in outcomes]


@pytest.mark.parametrize("ranks", [2, 3])
def test_shared_tensors_give_the_bits_of_private_ones_on_all_or_some_ranks(ranks):
    assert run_ranks(ranks, same_everywhere) == [[True] * 3] * ranks


def chunked_tensors():
    """How many tensors this rank sent in chunks, in each of the large collectives on shared ones."""
    counts, words = [], offers.relay_words

    def counting(area, layout, nbytes, sent, received, itemsize):
        counts.append(len(sent))
        return words(area, layout, nbytes, sent, received, itemsize)

    offers.relay_words = counting
    results(private)
    before, counts[:] = sum(counts), []
    results(shared)
    return before, counts


def test_shared_tensors_are_not_copied_into_chunks():
    for before, counts in run_ranks(2, chunked_tensors):
        assert before > 0
        assert counts == [0] * 6


def freed():
    """Inputs that are deleted while their collective runs, and others that get their memory."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    outs, works = [], []
    for step in range(6):
        x = gcl.torch.empty(2 * PART).fill_(rank + 10 * step)
        outs.append(torch.empty(ranks, 2 * PART))
        works.append(dist.all_gather_single(outs[-1], x, async_op=True))
        del x
        gcl.torch.empty(2 * PART).fill_(-1)
        dist.broadcast(gcl.torch.empty(2 * PART).fill_(step), 0)
    for work in works:
        work.wait()
    return all(bool((out[r] == r + 10 * step).all()) for step, out in enumerate(outs) for r in range(ranks))


def test_shared_tensors_may_be_freed_right_after_the_call():
    assert run_ranks(2, freed) == [True, True]


def in_place():
    """Outputs that are, or overlap, an input which the other ranks read."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    buffer = gcl.torch.empty(ranks, 2 * PART).fill_(-1)
    buffer[rank] = rank
    dist.all_gather_single(buffer, buffer[rank])
    gathered = all(bool((row == r).all()) for r, row in enumerate(buffer))
    scattered = []
    for place in (rank, 0):
        values = gcl.torch.empty(ranks, 2 * PART)
        for r in range(ranks):
            values[r] = torch.arange(2 * PART) % 1000 + r
        wanted = ranks * values[rank]
        dist.reduce_scatter_single(values[place], values)
        scattered.append(torch.equal(values[place], wanted))
    return gathered, *scattered


def test_an_output_may_be_a_part_of_the_input():
    assert run_ranks(3, in_place) == [(True, True, True)] * 3
