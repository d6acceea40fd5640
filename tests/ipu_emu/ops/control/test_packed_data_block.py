"""PackedDataBlock: a subgraph on sequences that are packed in one tensor, compared with a loop in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer

OFFSETS, LENGTHS = np.array([0, 2, 3, 6], np.uint32), np.array([2, 1, 3, 1], np.uint32)


def packed(builder: popart.Builder, block: int = 2, longest: int = 3) -> tuple[str, str]:
    data = builder.addInputTensor("FLOAT", [7, 2])
    offsets, lengths = (builder.aiOnnx.constant(values) for values in (OFFSETS, LENGTHS))
    body = builder.createSubgraphBuilder()
    rows = body.addUntypedInputTensor()
    total = body.aiOnnx.reducesum([rows], axes=[1], keepdims=1)
    body.addOutputTensor(body.aiOnnx.add([rows, total]))
    operands = [data, offsets, lengths, offsets, lengths]
    sizes = {"maxSequenceLengths": [longest], "resultSize": 9, "callbackBatchSize": block}
    return data, builder.aiGraphcore.packedDataBlock(operands, callback=body, **sizes)


@pytest.mark.parametrize("block", [1, 2, 4])
def test_each_sequence_is_a_row(block: int) -> None:
    builder = popart.Builder()
    data, y = packed(builder, block)
    x = np.arange(14, dtype=np.float32).reshape(7, 2)
    expected = np.zeros((9, 2), np.float32)
    for first, count in zip(OFFSETS, LENGTHS, strict=True):
        expected[first : first + count] = x[first : first + count] + x[first : first + count].sum(0)
    np.testing.assert_array_equal(infer(builder, popart.DataFlow(1, [y]), {data: x})[y], expected)


def test_sequences_fill_blocks() -> None:
    builder = popart.Builder()
    _, y = packed(builder, 3)
    with pytest.raises(popart.popart_exception, match=r"4 sequences.*callbackBatchSize 3"):
        infer(builder, popart.DataFlow(1, [y]), {})
