"""Instruction: the attributes that all instructions have, and iteration over the instructions of a program.

A ``Leaf`` contains no other instructions; ``Repeat``, ``Preload`` and ``Pipeline`` do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, TypeVar

from ipu_emu.graph import Op
from ipu_emu.ops import TABLE

_I = TypeVar("_I", bound="Instruction")


class Instruction:
    """The attributes that all instructions have."""

    #: Whether the host is involved.
    is_host_io: ClassVar[bool] = False

    @property
    def bodies(self) -> tuple[tuple[Instruction, ...], ...]:
        """The programs that it contains."""
        return ()

    @property
    def runs_of_bodies(self) -> int:
        """How often it runs each of these programs."""
        return 1

    def with_bodies(self, bodies: Sequence[tuple[Instruction, ...]]) -> Instruction:
        """A copy of the instruction that contains other programs."""
        assert not bodies
        return self

    def lines(self) -> Iterator[str]:
        """The instruction as text, with the programs that it contains indented."""
        yield str(self)
        for body in self.bodies:
            yield from indented(body)


class Leaf(Instruction):
    """An instruction that contains no others."""

    #: Whether it only moves data from one memory to another.
    is_copy: ClassVar[bool] = False

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops that it runs, or chooses from."""
        return ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The ids of the tensors that it reads."""
        return tuple(id for op in self.ops for id in op.reads if id)

    @property
    def writes(self) -> tuple[str, ...]:
        """The ids of the tensors that it writes; for AllReduce, the bucket."""
        return tuple(id for op in self.ops for id in _written(op))

    @property
    def tensors(self) -> tuple[str, ...]:
        """The ids of all tensors that it reads or writes."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


def _written(op: Op) -> Iterator[str]:
    yield from (id for id in op.outputs if id)
    yield from (op.inputs[index] for _, index in TABLE.in_place(op))


def of_type(instructions: Iterable[Instruction], kind: type[_I]) -> list[_I]:
    """The instructions of one class, or of classes derived from it."""
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def walk(program: Iterable[Instruction]) -> Iterator[Instruction]:
    """All instructions in program order, each before those that it contains."""
    for instruction in program:
        yield instruction
        for body in instruction.bodies:
            yield from walk(body)


def leaves(program: Iterable[Instruction]) -> Iterator[Leaf]:
    """The instructions that contain no others, in program order."""
    yield from of_type(walk(program), Leaf)


def counted_leaves(program: Iterable[Instruction], runs: int = 1) -> Iterator[tuple[Leaf, int]]:
    """The instructions that contain no others, with how often each runs if ``program`` runs ``runs`` times."""
    for instruction in program:
        yield from ((leaf, runs) for leaf in of_type([instruction], Leaf))
        for body in instruction.bodies:
            yield from counted_leaves(body, runs * instruction.runs_of_bodies)


def listing(program: Iterable[Instruction]) -> str:
    """A program as text, a line for each instruction."""
    return "\n".join(line for instruction in program for line in instruction.lines())


def indented(program: Iterable[Instruction], indent: str = "  ") -> Iterator[str]:
    """A program as lines of text, indented."""
    for instruction in program:
        yield from (indent + line for line in instruction.lines())
