"""Restrictions: one message names a feature that a container forbids, and the program continues if possible."""

import os
import warnings
from collections import namedtuple

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import gcl.torch  # noqa: E402
from gcl.torch.one_host import restrictions  # noqa: E402
from gcl.transport.memory import shared_memory  # noqa: E402
from gcl.transport.memory.segment import map_memory  # noqa: E402
from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402

pytestmark = pytest.mark.torch

Found = namedtuple("Found", "f_bavail f_frsize")


def said(caught):
    return [str(warning.message) for warning in caught if "gcl.torch" in str(warning.message)]


def copies():
    """The warnings at the first groups, and whether large tensors arrive."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    with warnings.catch_warnings(record=True) as caught:
        dist.new_group()
        dist.new_group()
    lists = [torch.empty(300_000 + 1000 * r) for r in range(ranks)]
    dist.all_to_all(lists, [torch.full((300_000 + 1000 * rank,), float(rank)) for _ in range(ranks)])
    moved = torch.full((500_000,), 7.0 + rank)
    if rank == 0:
        dist.send(moved, 1)
    elif rank == 1:
        dist.recv(moved, 0)
    good = all(bool((tensor == r).all()) for r, tensor in enumerate(lists)) and (rank > 1 or bool((moved == 7).all()))
    return said(caught), good


def test_forbidden_copies_between_processes_are_reported_once_and_replaced(monkeypatch):
    monkeypatch.setattr(shared_memory, "can_access_process", lambda *_: False)
    (first, good), *others = run_ranks(3, copies)
    assert good
    assert all(other == ([], True) for other in others)
    assert len(first) == 1
    assert "forbids process_vm_readv" in first[0]
    assert "--cap-add=SYS_PTRACE" in first[0]


def small_shared_memory():
    """The warnings while DDP trains with ddp_hook, and whether its gradients are the mean of all ranks."""
    model = DistributedDataParallel(torch.nn.Linear(1536, 1536, bias=False), gradient_as_bucket_view=True)
    model.register_comm_hook(None, gcl.torch.ddp_hook)
    with warnings.catch_warnings(record=True) as caught:
        for _ in range(3):
            model.zero_grad()
            model(torch.full((1, 1536), 1.0 + dist.get_rank())).sum().backward()
    return said(caught), bool((model.module.weight.grad == 1.5).all())


@pytest.mark.parametrize(("pages", "state"), [(4096, "has 16 MiB left"), (None, "is missing")])
def test_too_little_shared_memory_for_buckets_is_named_once_and_they_are_copied(monkeypatch, pages, state):
    def statvfs(path):
        if pages is None:
            raise FileNotFoundError(path)
        return Found(pages, 4096)

    monkeypatch.setattr(restrictions.os, "statvfs", statvfs)
    (first, good), (second, as_good) = run_ranks(2, small_shared_memory)
    assert good
    assert as_good
    assert second == []
    assert len(first) == 1
    assert f"/dev/shm {state}, but ddp_hook moves a bucket of all ranks there, which needs 36 MiB" in first[0]
    assert "--shm-size" in first[0]


def test_memory_that_cannot_be_shared_is_named_with_what_to_do(monkeypatch):
    open_file = os.open

    def forbidden(path, *arguments, **options):
        if "/fd/" in str(path):
            raise PermissionError(13, "Permission denied", path)
        return open_file(path, *arguments, **options)

    monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(AssertionError, match=r"gcl\.torch.*share memory") as e:
        run_ranks(2, os.getpid)
    assert 'or call init_process_group("gloo")' in str(e.value)
    assert "transport='mpi'" not in str(e.value).split("The above exception")[-1]


def test_too_little_address_space_is_named_with_the_option_for_less(monkeypatch):
    monkeypatch.setattr(shared_memory, "map_memory", lambda *_: map_memory(-1, 1 << 60))
    with pytest.raises(AssertionError, match=r"raise `ulimit -v`, or pass pg_options=gcl\.torch\.Options") as e:
        run_ranks(2, os.getpid)
    assert "/proc" not in str(e.value).split("TransportError: gcl.torch")[-1].splitlines()[0]
