"""Listing: a program as text."""

from __future__ import annotations

from collections.abc import Sequence

from ipu_emu.program.instructions import Instruction, Pipeline, Preload, Repeat

__all__ = ["listing"]


def listing(instructions: Sequence[Instruction], indent: str = "") -> str:
    """The program as text, a line for each instruction."""
    lines = []
    for instruction in instructions:
        lines.append(f"{indent}{instruction}")
        if isinstance(instruction, Repeat):
            lines.append(listing(instruction.body, indent + "  "))
        if isinstance(instruction, Preload):
            lines += [
                listing(instruction.loads, indent + "  "),
                f"{indent}while",
                listing(instruction.body, indent + "  "),
            ]
        if isinstance(instruction, Pipeline):
            for stage in instruction.stages:
                lines.append(f"{indent}  stage {stage.index} on IPU {stage.ipu}")
                lines.append(listing(stage.body, indent + "    "))
    return "\n".join(lines)
