"""Body inputs: types and shapes of the inputs of a subgraph, such as a loop body, as its op determines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ipu_emu.graph.dtype import BOOL, INT64, DType
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.graph.tensor import Tensor

#: Type and shape.
Kind = tuple[DType, tuple[int, ...]]
#: The attribute of a Scan that treats scanned tensors as PopART does, not as ONNX.
CONCATENATES = "__concatenate_scans"


def body_input_kinds(
    domain: str, type: str, version: int, attributes: Mapping[str, Any], operands: Sequence[Tensor | None]
) -> list[Kind]:
    """Return types and shapes of the first inputs of a body, as far as the operands of its op determine them."""
    kinds = [(tensor.dtype, tensor.shape) for tensor in operands if tensor is not None]
    if type == "Loop":
        return [(INT64, ()), (BOOL, ()), *kinds[len(kinds) - (len(operands) - 2) :]]
    if type == "PackedDataBlock":
        block, longest = int(attributes["callbackBatchSize"]), list(attributes["maxSequenceLengths"])
        return [
            (dtype, (block, int(most), *shape[1:]))
            for (dtype, shape), most in zip(kinds[: 3 * len(longest) : 3], longest, strict=True)
        ]
    if type != "Scan":
        return kinds if domain == GRAPHCORE else []
    if version < 9 and operands[0] is not None:  # the lengths of the sequences
        kinds = kinds[1:]
    states = len(kinds) - int(attributes["num_scan_inputs"])
    if version < 9:  # all operands have a batch axis
        samples = [(dtype, shape[1:]) for dtype, shape in kinds]
        return [*samples[:states], *((dtype, shape[1:]) for dtype, shape in samples[states:])]
    axes = attributes.get("scan_input_axes") or [0] * int(attributes["num_scan_inputs"])
    rows = [
        (dtype, _slice(shape, axis, keeps=bool(attributes.get(CONCATENATES))))
        for (dtype, shape), axis in zip(kinds[states:], axes, strict=True)
    ]
    return [*kinds[:states], *rows]


def _slice(shape: tuple[int, ...], axis: int, *, keeps: bool) -> tuple[int, ...]:
    """Return ``shape`` without ``axis``; with ``keeps`` a vector has slices of one element."""
    row = tuple(size for index, size in enumerate(shape) if index != axis % len(shape))
    return row or ((1,) if keeps else ())
