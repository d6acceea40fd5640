"""LeafLabel: the name and the output by which reports identify an instruction, measured or modelled."""

from __future__ import annotations

from typing import NamedTuple

from ipu_emu.program.instructions import Compute, Leaf, WeightUpdate


class LeafLabel(NamedTuple):
    """The type of an op that is computed, else the kind of the instruction; and the first tensor that it makes."""

    name: str
    output: str

    @classmethod
    def of(cls, leaf: Leaf) -> LeafLabel:
        op = leaf.ops[0] if leaf.ops else None
        named = op.type if op and type(leaf) in (Compute, WeightUpdate) else type(leaf).__name__
        return cls(named, next(iter(op.outputs if op else leaf.tensors), ""))
