"""Ranks of several hosts, simulated by names: gcl within a host, gloo between them, and the same bits."""

import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402

from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402
from tests.gcl.torch.test_collectives import moves, same  # noqa: E402

pytestmark = pytest.mark.torch


def sums():
    """Sums and means of numbers whose sum depends on the order in which they are added."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    found = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for size in (1, 1001, 50_000):
            x = (torch.randn(size, generator=generator) * 100).to(dtype)
            y = x.clone()
            dist.all_reduce(x)
            dist.all_reduce(y, dist.ReduceOp.AVG)
            found += [x.view(torch.uint8).numpy(), y.view(torch.uint8).numpy()]
    return found


def messages():
    """Tags, any source, and a barrier."""
    rank = dist.get_rank()
    dist.barrier()
    if rank == 0:
        x = torch.zeros(3, 2)
        sources = sorted([dist.recv(x[:, 0], tag=4), dist.recv(x[:, 1], tag=4)])
        return sources, x.sum().item()
    dist.send(torch.full((3,), float(rank)), 0, tag=4)
    return None


@pytest.mark.parametrize("hosts", [("a", "a", "b", "b"), ("a", "b", "c", "d"), ("a", "b", "b", "b")])
def test_sums_have_the_bits_of_one_host(hosts):
    alone = run_ranks(4, sums)[0]
    for found in run_ranks(4, sums, hosts=hosts):
        assert all(
            same(torch.from_numpy(one), torch.from_numpy(other)) for one, other in zip(found, alone, strict=True)
        )


def test_copies_and_messages_arrive():
    assert run_ranks(3, moves, hosts=("a", "a", "b")) == [[]] * 3
    assert run_ranks(3, messages, hosts=("a", "b", "b"))[0] == ([1, 2], 9.0)


def joined():
    """The class of this rank's group, and a sum."""
    x = torch.ones(3)
    dist.all_reduce(x)
    return type(dist.group.WORLD._group).__name__, x.tolist()


def test_containers_of_one_host_do_not_share_memory(monkeypatch):
    """A process id of one is that of another process in the other."""
    assert run_ranks(2, joined) == [("HostGroup", [2.0] * 3)] * 2
    monkeypatch.setattr("gcl.torch.registration.process_namespace", lambda: str(os.getpid()))
    assert run_ranks(2, joined) == [("SeveralHosts", [2.0] * 3)] * 2
