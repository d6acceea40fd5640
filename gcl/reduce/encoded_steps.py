"""Encoded steps: copies, clears and reductions of given arrays as integers that compiled code executes in order."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from gcl.kernels.copies import copy_part, start_of, zero_bytes
from gcl.kernels.jit import bare, bare_part
from gcl.reduce.reduction import reduce_range

#: One step, which holds only the addresses of arrays and does not keep them alive.
Step = np.ndarray


class _Kind(IntEnum):
    COPY = 0
    CLEAR = 1
    COMBINE = 2


class _Word(IntEnum):
    """Index of each word of a step."""

    LENGTH = 0  # number of words
    KIND = 1
    TO = 2  # address, of a copy or a clear
    FROM = 3  # address, of a copy
    NBYTES = 4  # of a copy or a clear
    RECIPE = 5  # number of words of a recipe, which follow
    NODES = 6  # number of addresses of contributions, which follow then
    RESULTS = 7  # number of addresses of results, which are last
    ELEMENTS = 8  # of a result
    FIRST = 9  # the first of what follows


def copy(out: np.ndarray, x: np.ndarray) -> Step:
    """Copy ``x`` to ``out``; both are C-contiguous, of one size in bytes."""
    return _step({_Word.KIND: _Kind.COPY, _Word.TO: start_of(out), _Word.FROM: start_of(x), _Word.NBYTES: x.nbytes})


def clear(x: np.ndarray) -> Step:
    """Write zeros to ``x``."""
    return _step({_Word.KIND: _Kind.CLEAR, _Word.TO: start_of(x), _Word.NBYTES: x.nbytes})


def combine(recipe: np.ndarray, nodes: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> Step:
    """Combine ``nodes`` into each of ``results``, as ``reduce_range``; a result may be a node."""
    words = {
        _Word.KIND: _Kind.COMBINE,
        _Word.RECIPE: len(recipe),
        _Word.NODES: len(nodes),
        _Word.RESULTS: len(results),
        _Word.ELEMENTS: results[0].size,
    }
    return _step(words, [*recipe.tolist(), *map(start_of, nodes), *map(start_of, results)])


def in_order(steps: Sequence[Step]) -> np.ndarray:
    """All ``steps``, as ``run_steps`` takes them."""
    return np.concatenate([np.empty(0, np.int64), *steps])


def _step(words: dict[_Word, int], rest: Sequence[int] = ()) -> Step:
    fixed = [words.get(word, 0) for word in _Word if word < _Word.FIRST]
    fixed[_Word.LENGTH] = len(fixed) + len(rest)
    return np.array([*fixed, *rest], np.int64)


@bare_part
def take_steps(steps: Any, scratch: Any) -> None:
    """Carry out ``steps``; ``scratch`` is from ``reduction.new_scratch``."""
    at = 0
    while at < len(steps):
        to, nbytes = steps[at + _Word.TO], steps[at + _Word.NBYTES]
        if steps[at + _Word.KIND] == _Kind.COPY:
            copy_part(to, steps[at + _Word.FROM], nbytes, nbytes)
        elif steps[at + _Word.KIND] == _Kind.CLEAR:
            zero_bytes(to, nbytes)
        else:
            recipe = steps[at + _Word.FIRST :]
            nodes = recipe[steps[at + _Word.RECIPE] :]
            results = nodes[steps[at + _Word.NODES] :]
            copies, elements = steps[at + _Word.RESULTS], steps[at + _Word.ELEMENTS]
            reduce_range(recipe, nodes, results, copies, 0, elements, scratch)
        at += steps[at + _Word.LENGTH]


@bare
def run_steps(steps: Any, scratch: Any) -> None:
    """``take_steps``, called from Python."""
    take_steps(steps, scratch)
