"""CTC decoding: the most likely label sequences of connectionist temporal classification (see ``ctc_loss``).

    log_probs [T, N, C]   lengths [N]   ->   log of the probability [N, P]   labels in it [N, P]   labels [N, P, T]

Beam search over prefixes of sequences: each of the best W is kept with the log probability of its paths that end with
a blank, and of those that end with its last label. Sequences are padded with zeros; if fewer than P sequences have a
path, the others are empty, with a log probability of minus infinity.
Source: Graves et al. 2012; PopART 3.4 for the arguments, Poplar 3.4 (popnn, CTCInference) for the results.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit, part
from ipu_emu.graph.dtype import UINT32
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import BoundOp, Call, Node, OpDef, OutputTypes, flops
from ipu_emu.ops.core.kernel_helpers import with_contiguous_operands
from ipu_emu.ops.losses.ctc_loss import log_add_exp

# Columns of the tree of prefixes, which has a row for each. Compiled code reads global numbers, no enumerations.
_PARENT = 0  # row of the prefix that is one label shorter
_LABEL = 1  # its last label
_DEPTH = 2  # the number of its labels
_CHILD = 3  # row of its newest child, -1 for none
_BESIDE = 4  # row of its next older sibling, -1 for none
_PLACE = 5  # its position in the beam, -1 outside of it
_TREE_COLUMNS = 6

# Columns of the beam: log probabilities of the paths of a prefix.
_BLANK = 0  # those that end with a blank
_ELSE = 1  # those that end with its last label
_BEAM_COLUMNS = 2


@part
def _longer(tree: NDArray[Any], node: int, label: int) -> int:
    """The child of prefix ``node`` for ``label``, or -1 if there is none."""
    child = tree[node, _CHILD]
    while child >= 0 and tree[child, _LABEL] != label:
        child = tree[child, _BESIDE]
    return int(child)


@part
def _scores(
    p: NDArray[Any], blank: int, best: NDArray[Any], sums: NDArray[Any], count: int, tree: NDArray[Any],
    next_sums: NDArray[Any], scores: NDArray[Any],
) -> None:  # fmt: skip
    """scores[i, c] = log probability of prefix i extended by label c, or of prefix i itself for c = blank.

    ``next_sums`` holds the columns of the unextended prefixes. Paths that lead to a prefix which is in the beam
    already are counted there.
    """
    classes = p.shape[0]
    for i in range(count):
        node = best[i]
        total = log_add_exp(sums[i, _BLANK], sums[i, _ELSE])
        next_sums[i, blank, _BLANK] = total + p[blank]
        again = sums[i, _ELSE] + p[tree[node, _LABEL]] if tree[node, _DEPTH] else -np.inf
        next_sums[i, blank, _ELSE] = again
    for i in range(count):
        node = best[i]
        total = log_add_exp(sums[i, _BLANK], sums[i, _ELSE])
        for c in range(classes):
            if c == blank:
                continue
            repeated = tree[node, _DEPTH] > 0 and tree[node, _LABEL] == c
            gain = (sums[i, _BLANK] if repeated else total) + p[c]
            child = _longer(tree, node, c)
            place = tree[child, _PLACE] if child >= 0 else -1
            if place >= 0:
                next_sums[place, blank, _ELSE] = log_add_exp(next_sums[place, blank, _ELSE], gain)
                gain = -np.inf
            next_sums[i, c, _BLANK], next_sums[i, c, _ELSE] = -np.inf, gain
    for i in range(count):
        for c in range(classes):
            scores[i * classes + c] = log_add_exp(next_sums[i, c, _BLANK], next_sums[i, c, _ELSE])


@part
def _child(tree: NDArray[Any], parent: int, label: int, known: int) -> int:
    """The child of ``parent`` for ``label``; a new one gets the number ``known``."""
    child = _longer(tree, parent, label)
    if child >= 0:
        return child
    tree[known, _PARENT], tree[known, _LABEL], tree[known, _DEPTH] = parent, label, tree[parent, _DEPTH] + 1
    tree[known, _CHILD], tree[known, _BESIDE], tree[known, _PLACE] = -1, tree[parent, _CHILD], -1
    tree[parent, _CHILD] = known
    return known


@part
def _highest(scores: NDArray[Any], count: int, positions: NDArray[Any]) -> int:
    """The positions of the highest of ``count`` scores, in order, into ``positions``; none of minus infinity.

    Each is put in its place among those before it: numpy's sort would take seconds to compile.
    """
    size = 0
    for candidate in range(count):
        score = scores[candidate]
        if score == -np.inf or (size == positions.size and score <= scores[positions[size - 1]]):
            continue
        size = min(size + 1, positions.size)
        place = size - 1
        while place and scores[positions[place - 1]] < score:
            positions[place] = positions[place - 1]
            place -= 1
        positions[place] = candidate
    return size


@part
def _keep(
    scores: NDArray[Any], blank: int, best: NDArray[Any], sums: NDArray[Any], count: int, tree: NDArray[Any],
    next_sums: NDArray[Any], known: int,
) -> tuple[int, int]:  # fmt: skip
    """Keep the candidates with the highest scores (ties: the first); return the sizes of the beam and of the tree."""
    classes = next_sums.shape[1]
    chosen = _highest(scores, count * classes, best[1])
    for k in range(chosen):
        i, c = best[1, k] // classes, best[1, k] % classes
        node = best[0, i] if c == blank else _child(tree, best[0, i], c, known)
        known += node == known
        best[1, k] = node
        for column in range(_BEAM_COLUMNS):
            sums[1, k, column] = next_sums[i, c, column]
    for i in range(count):
        tree[best[0, i], _PLACE] = -1
    for k in range(chosen):
        best[0, k] = best[1, k]
        for column in range(_BEAM_COLUMNS):
            sums[0, k, column] = sums[1, k, column]
        tree[best[0, k], _PLACE] = k
    return chosen, known


@jit
def ctc_decode(
    p: NDArray[Any],
    lengths: NDArray[Any],
    values: NDArray[Any],
    sizes: NDArray[Any],
    labels: NDArray[Any],
    blank: int,
    tree: NDArray[Any],
    best: NDArray[Any],
    sums: NDArray[Any],
    next_sums: NDArray[Any],
    scores: NDArray[Any],
) -> None:
    """Beam search; ``best`` [2, W] are the prefixes of this and the next beam, ``sums`` [2, W, 2] their columns."""
    for n in range(p.shape[1]):
        count, known = 1, 1
        for column in range(_TREE_COLUMNS):
            tree[0, column] = -1
        tree[0, _DEPTH], tree[0, _PLACE] = 0, 0
        best[0, 0], sums[0, 0, _BLANK], sums[0, 0, _ELSE] = 0, 0.0, -np.inf
        for t in range(min(int(lengths[n]), p.shape[0])):
            _scores(p[t, n], blank, best[0], sums[0], count, tree, next_sums, scores)
            count, known = _keep(scores, blank, best, sums, count, tree, next_sums, known)
        for k in range(values.shape[1]):
            for place in range(labels.shape[2]):
                labels[n, k, place] = 0
            node = best[0, k] if k < count else 0
            values[n, k] = log_add_exp(sums[0, k, _BLANK], sums[0, k, _ELSE]) if k < count else -np.inf
            sizes[n, k] = tree[node, _DEPTH]
            while tree[node, _DEPTH] > 0:
                labels[n, k, tree[node, _DEPTH] - 1] = tree[node, _LABEL]
                node = tree[node, _PARENT]


def _shape(node: Node) -> OutputTypes:
    p, lengths = node.input(0), node.input(1)
    if p.rank != 3 or lengths.shape != p.shape[1:2] or not lengths.dtype.is_integer:
        raise node.fail(f"inputs must be log probabilities [T, N, C] and N integer lengths, found {p} and {lengths}")
    blank, width, paths = _settings(node)
    if not 0 <= blank < p.shape[2]:
        raise node.fail(f"blank {blank} is not one of {p.shape[2]} classes")
    if not 1 <= paths <= width:
        raise node.fail(f"top_paths {paths} must be from 1 to beam_width ({width})")
    shape = (p.shape[1], paths)
    return [(p.dtype, shape), (UINT32, shape), (UINT32, (*shape, p.shape[0]))]


def _settings(node: Node) -> tuple[int, int, int]:
    """(blank, beam width, number of sequences to return)"""
    return (
        int(node.attribute("blank", 0)),
        int(node.attribute("beam_width", 100)),
        int(node.attribute("top_paths", 1)),
    )


def _decode(bound: BoundOp) -> Call:
    p, lengths = bound.input(0), bound.input(1)
    blank, width, _ = _settings(bound.node)
    times, _, classes = p.shape
    tree, best = np.empty((1 + times * width, _TREE_COLUMNS), np.int64), np.empty((2, width), np.int64)
    sums, next_sums = np.empty((2, width, _BEAM_COLUMNS)), np.empty((width, classes, _BEAM_COLUMNS))
    values, sizes, labels = bound.outputs
    scores = np.empty(width * classes)
    return partial(ctc_decode, p, lengths, values, sizes, labels, blank, tree, best, sums, next_sums, scores)


def _work(node: Node) -> int:
    times, batch, classes = node.input(0).shape
    return 10 * times * batch * classes * _settings(node)[1]


OPS = [
    OpDef("CtcBeamSearchDecoder", (2, 2), _shape, with_contiguous_operands(_decode), flops(_work), domain=GRAPHCORE)
]
