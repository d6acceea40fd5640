"""Waits of ranks of a PyTorch job: without spinning if the host has more ranks than cores."""

import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402

from gcl.transport.rendezvous.rank_table import Table  # noqa: E402
from gcl.transport.rendezvous.rendezvous import Waits  # noqa: E402
from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402

pytestmark = pytest.mark.torch


def spins():
    """The number of polls before a wait yields, in the group of all ranks and in a group of two."""
    groups = [dist.group.WORLD, dist.new_group([0, 1])]
    mine = [group for group in groups if group != dist.GroupMember.NON_GROUP_MEMBER]
    return [int(group._group.path._table[Table.WAITS + Waits.SPINS]) for group in mine]


@pytest.mark.parametrize(("cores", "spin"), [(2, [False, False]), (8, [True, True])])
def test_they_do_not_spin_where_all_ranks_of_the_host_outnumber_the_cores(cores, spin, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    first, _, last = run_ranks(3, spins)
    assert [count > 0 for count in first] == spin
    assert [count > 0 for count in last] == spin[:1]
