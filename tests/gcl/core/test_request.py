"""Requests: when two calls are the same, and how they are named."""

from itertools import combinations
from pathlib import Path

import numpy as np

import gcl
from gcl import Operator
from gcl.core.request import Collective, Request

FLOAT, HALF = np.dtype(np.float32), np.dtype(np.float16)

#: Requests that must differ from each other -> their names in messages.
NAMES = {
    Request(None, Operator.ADD, FLOAT, 0): "barrier",
    Request(Collective.ALL_REDUCE, Operator.ADD, FLOAT, 4): "all_reduce(add, 4 x float32)",
    Request(Collective.ALL_REDUCE, Operator.MEAN, FLOAT, 4): "all_reduce(mean, 4 x float32)",
    Request(Collective.ALL_REDUCE, Operator.ADD, HALF, 4): "all_reduce(add, 4 x float16)",
    Request(Collective.ALL_REDUCE, Operator.ADD, FLOAT, 5): "all_reduce(add, 5 x float32)",
    Request(Collective.REDUCE_SCATTER, Operator.ADD, FLOAT, 4): "reduce_scatter(add, 4 x float32)",
    Request(Collective.ALL_GATHER, Operator.ADD, FLOAT, 4): "all_gather(4 x float32)",
    Request(Collective.BROADCAST, Operator.ADD, FLOAT, 4, 0): "broadcast(root 0, 4 x float32)",
    Request(Collective.BROADCAST, Operator.ADD, FLOAT, 4, 1): "broadcast(root 1, 4 x float32)",
}


def test_names() -> None:
    assert [str(request) for request in NAMES] == list(NAMES.values())


def test_signatures_tell_every_two_calls_apart() -> None:
    for first, other in combinations(NAMES, 2):
        assert first.signature != other.signature, (str(first), str(other))


def test_equal_calls_have_equal_signatures() -> None:
    first, other = (Request(Collective.ALL_REDUCE, Operator.ADD, FLOAT, 4) for _ in range(2))
    assert first.signature == other.signature


def _ask(filename: str) -> str:
    """The call site seen from a program in ``filename``."""
    code = compile("\n\nsite = request.with_call_site()", filename, "exec")
    names = {"request": Request(None, Operator.ADD, FLOAT, 0)}
    exec(code, names)
    return str(names["site"])


def test_the_call_site_is_the_first_line_outside_the_package() -> None:
    assert _ask("/home/someone/train.py") == "barrier at /home/someone/train.py:3"


def test_a_program_next_to_the_package_with_a_similar_name_is_outside_of_it() -> None:
    neighbour = f"{Path(gcl.__file__).parent}_experiments/train.py"
    assert _ask(neighbour) == f"barrier at {neighbour}:3"
