"""How ranks of a PyTorch job wait for each other: asleep at once where the ranks of the host outnumber its cores."""

import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402

from gcl.transport.rendezvous.rank_table import Table  # noqa: E402
from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402

pytestmark = pytest.mark.torch


def spins():
    """How often a wait looks before it yields, in the group of all ranks, and in one of two."""
    groups = [dist.group.WORLD, dist.new_group([0, 1])]
    return [
        int(group._group.path._table[Table.SPINS]) for group in groups if group != dist.GroupMember.NON_GROUP_MEMBER
    ]


@pytest.mark.parametrize(("cores", "asleep"), [(2, [True, True]), (8, [False, False])])
def test_they_sleep_at_once_where_all_ranks_of_the_host_outnumber_the_cores(cores, asleep, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    first, _, last = run_ranks(3, spins)
    assert [count < 0 for count in first] == asleep
    assert [count < 0 for count in last] == asleep[:1]
