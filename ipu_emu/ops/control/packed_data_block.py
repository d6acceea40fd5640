"""PackedDataBlock: a subgraph runs on sequences that are packed in one tensor, a few of them at a time (aiGraphcore).

data [tokens, rest]   offsets [n], lengths [n]            of each data input
  rows [n, longest, rest], filled with 0                  one sequence per row
  body, once per callbackBatchSize rows                   [callbackBatchSize, m, rest]
result [resultSize, rest]                                 the first elements of each row, at the result's offsets
"""

from __future__ import annotations

import numpy as np

from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.control.inlining import Inliner, body_of, inlined_op
from ipu_emu.ops.core import Node, OutputTypes, Rewrite


def _shape(node: Node) -> OutputTypes:
    longest, size = list(node.attribute("maxSequenceLengths", [])), int(node.attribute("resultSize", 0))
    block, body = int(node.attribute("callbackBatchSize", 1)), body_of(node, "callback")
    if len(node.inputs) != 3 * len(longest) + 2:
        raise node.fail(
            f"{len(node.inputs)} operands and {len(longest)} maxSequenceLengths were given; give data, offsets and "
            "lengths for each of them, then the offsets and lengths of the result"
        )
    if len(body.inputs) != len(longest) or len(body.outputs) != 1:
        raise node.fail(f"the callback must have {len(longest)} inputs and 1 output")
    count = node.input(1).nelms
    if block < 1 or count % block:
        raise node.fail(f"{count} sequences do not fill blocks of callbackBatchSize {block}; use a divisor")
    for index in range(len(node.inputs)):
        operand, is_data = node.input(index), index % 3 == 0 and index < 3 * len(longest)
        if not is_data and (operand.shape != (count,) or not operand.dtype.is_integer):
            raise node.fail(f"offsets and lengths must be {count} integers, one per sequence; found {operand}")
    result = body.tensor(body.outputs[0])
    if len(result.shape) < 2 or result.shape[0] != block:
        raise node.fail(f"the callback gives {result}; it must give {block} rows")
    return [(result.dtype, (size, *result.shape[2:]))]


def _expand(rewrite: Rewrite, node: Node) -> None:
    body, block = body_of(node, "callback"), int(node.attribute("callbackBatchSize", 1))
    count = node.input(1).nelms
    packed = [
        _rows(rewrite, node, 3 * i, int(most)) for i, most in enumerate(node.attribute("maxSequenceLengths", []))
    ]
    inliner, parts = Inliner(rewrite), []
    for first in range(0, count, block):
        cuts = [rewrite.op("Slice", rows, starts=[first], ends=[first + block], axes=[0]) for rows in packed]
        parts += inliner.inline(body, cuts)
    shape = body.tensor(body.outputs[0]).shape
    joined = rewrite.op("Concat", *parts, axis=0)
    flat = rewrite.op("ReshapeTo", joined, shape=[count * shape[1], *shape[2:]])
    zeros = np.zeros((int(node.attribute("resultSize", 0)), *shape[2:]), body.tensor(body.outputs[0]).dtype.numpy)
    offsets, lengths = node.op.inputs[-2:]
    runs = (lengths, rewrite.constant(np.arange(count, dtype=np.uint32) * shape[1]), offsets)
    sequences = rewrite.op("SequenceSlice", flat, rewrite.constant(zeros), *runs, domain=GRAPHCORE, zeroUnused=1)
    rewrite.op("Identity", sequences, into=node.op.outputs[0])


def _rows(rewrite: Rewrite, node: Node, first: int, most: int) -> str:
    """The sequences of one data input, one per row of ``most`` elements, filled with 0."""
    data, offsets, lengths = (node.input(first + i) for i in range(3))
    count = offsets.nelms
    limit = rewrite.constant(np.full(count, most, lengths.dtype.numpy))
    zeros = rewrite.constant(np.zeros((count * most, *data.shape[1:]), data.dtype.numpy))
    to = rewrite.constant(np.arange(count, dtype=np.uint32) * most)
    runs = (rewrite.op("Min", lengths.id, limit), offsets.id, to)
    sequences = rewrite.op("SequenceSlice", data.id, zeros, *runs, domain=GRAPHCORE, zeroUnused=1)
    return rewrite.op("ReshapeTo", sequences, shape=[count, most, *data.shape[1:]])


OPS = [inlined_op("PackedDataBlock", (5, None), _shape, _expand, GRAPHCORE)]
