"""gcl.torch.split_group: what torch.distributed.split_group does on accelerators, on CPUs."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

import torch.distributed as dist  # noqa: E402

import gcl.torch  # noqa: E402
from gcl.errors import ArgumentError  # noqa: E402
from tests.gcl.helpers.torch_ranks import run_ranks  # noqa: E402

pytestmark = pytest.mark.torch


def total(group):
    """The sum of the global ranks of ``group``; None if this rank is in none."""
    if group is None:
        return None
    x = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(x, group=group)
    return x.item()


def divided():
    """Sums within the halves, in one of three ranks, and in the odd ranks of a group whose ranks are not global."""
    halves = gcl.torch.split_group(split_ranks=[[1, 0], [2, 3]], group_desc="halves")
    again = gcl.torch.split_group(split_ranks=[[0, 1], [2, 3]])
    three = gcl.torch.split_group(split_ranks=[[3, 0, 1]])
    last = dist.new_group([1, 2, 3])
    pair = gcl.torch.split_group(last, [[0, 2]]) if dist.get_rank() else None
    return [total(group) for group in (halves, again, three, pair)], halves.group_desc, dist.get_backend(halves)


def test_groups_are_divided_by_ranks_of_the_parent():
    answers = run_ranks(4, divided)
    assert [sums for sums, *_ in answers] == [
        [1.0, 1.0, 4.0, None],
        [1.0, 1.0, 4.0, 4.0],
        [5.0, 5.0, None, None],
        [5.0, 5.0, 4.0, 4.0],
    ]
    assert {(described, backend) for _, described, backend in answers} == {("halves", "gcl")}


def refused(split_ranks):
    try:
        gcl.torch.split_group(split_ranks=split_ranks)
    except ArgumentError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("split_ranks", "said"),
    [
        ([], "has no group, or an empty one"),
        ([[0], []], "has no group, or an empty one"),
        ([[0, 1], [1]], "1 is in two groups, or no rank of the parent; use each of 0 to 1 at most once"),
        ([[0, 2]], "2 is in two groups, or no rank of the parent"),
    ],
)
def test_other_divisions_are_refused_on_all_ranks(split_ranks, said):
    assert all(said in text for text in run_ranks(2, refused, split_ranks))


def by_pytorch():
    """The error of PyTorch's own function: once there is none, ours is not needed."""
    try:
        dist.split_group(split_ranks=[[0], [1]])
    except RuntimeError as error:
        return str(error)
    return ""


def test_pytorch_refuses_its_own_function_on_cpus():
    assert all("No device associated with the default pg" in text for text in run_ranks(2, by_pytorch))
