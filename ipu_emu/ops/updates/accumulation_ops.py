"""Accumulation ops: add up the gradients of micro-batches in place; CopyVarUpdate; stashes of activations."""

from __future__ import annotations

from functools import partial

import numpy as np

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import BoundOp, Call, Node, OpDef, OutputTypes, call_chain, per_element
from ipu_emu.ops.core.kernel_helpers import copies_in_place, running_mean, ufunc
from ipu_emu.ops.core.shape_rules import same


def _copy_into(bound: BoundOp) -> Call:
    return partial(np.copyto, bound.outputs[0], bound.input(1))


def _mean_into(bound: BoundOp) -> Call:
    return running_mean(bound, bound.input(2), bound.input(3))


def _update_shape(node: Node) -> OutputTypes:
    old, new = node.input(0), node.input(1)
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        raise node.fail(f"{new} cannot replace {old}; give it the same type and shape")
    return same(node)


def _stashed(node: Node) -> OutputTypes:
    stash, count = node.input(1), node.input(2)
    return [(stash.dtype, stash.shape), (count.dtype, ()), (stash.dtype, stash.shape)]


def _put_into_stash(bound: BoundOp) -> Call:
    x, (stash, count, shown) = bound.input(0), bound.outputs

    def run() -> None:
        stash[int(count[()]) % len(stash)] = x
        count[()] = (count[()] + 1) % len(stash)
        np.copyto(shown, stash)

    return call_chain(*copies_in_place(bound, slice(1, 3)), run)


OPS = [
    # (x, places, count): x is put into the next place; the third output is a copy of all places.
    OpDef("PutIntoStash", (3, 3), _stashed, _put_into_stash, per_element(0), updates=(1, 2)),
    # (total, g): the first micro-batch, the others; MeanInto(total, g, keep, take) keeps a running mean.
    OpDef("CopyInto", (2, 2), same, _copy_into, per_element(0), updates=(0,), elementwise=True),
    OpDef(
        "CopyVarUpdate",
        (2, 2),
        _update_shape,
        _copy_into,
        per_element(0),
        updates=(0,),
        elementwise=True,
        domain=GRAPHCORE,
    ),
    OpDef("AddInto", (2, 2), same, ufunc(np.add), per_element(1), updates=(0,), elementwise=True),
    OpDef(
        "MeanInto",
        (4, 4),
        same,
        _mean_into,
        per_element(3),
        None,
        lambda node: [node.input(1).nelms],
        updates=(0,),
        elementwise=True,
    ),
]
