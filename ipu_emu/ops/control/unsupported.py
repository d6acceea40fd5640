"""Unsupported ops: sequences of tensors and strings, which devices do not have; models that use them are rejected."""

from __future__ import annotations

from ipu_emu.errors import RefusedError
from ipu_emu.ops.core import Node, OpDef, OutputTypes, copy_cost, replaced_before_run

_SEQUENCES = "devices have no sequences of tensors; use concat, split and gather"
_TEXTS = "devices have no strings; convert them to numbers on the host"
#: Why an op is refused.
REASONS = {
    "ConcatFromSequence": _SEQUENCES,
    "SequenceAt": _SEQUENCES,
    "SequenceConstruct": _SEQUENCES,
    "SequenceEmpty": _SEQUENCES,
    "SequenceErase": _SEQUENCES,
    "SequenceInsert": _SEQUENCES,
    "SequenceLength": _SEQUENCES,
    "SplitToSequence": _SEQUENCES,
    "StringNormalizer": _TEXTS,
}


def _refuse(node: Node) -> OutputTypes:
    raise RefusedError(f"Op {node.op.label}: {REASONS[node.op.type]}")


OPS = [OpDef(type, (0, None), _refuse, replaced_before_run, copy_cost) for type in REASONS]
