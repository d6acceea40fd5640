"""Interpreter: runs a step program step by step on numpy arrays.

``run`` holds all replicas in this process, for tests and drawings. ``execute`` holds some replicas, and uses an
Exchanger for copies between replicas, so that the same program runs on several ranks:

    for step in program
        Reduce, Copy   on each replica that is here
        Exchange       exchanger.carry: send what local replicas send, receive what they get
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from gcl.core.operators import Operator
from gcl.errors import ArgumentError
from gcl.scheduling.program.step_program import INPUT, OUTPUT, Exchange, Reduce, Slice, StepProgram

#: A ufunc of own and received.
Combine = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Operation:
    """An operator as a program uses it: ``prepare`` contributions, combine them, ``finish`` with the group size."""

    combine: Combine
    prepare: Callable[[np.ndarray], np.ndarray] = lambda x: x
    finish: Callable[[np.ndarray, int], np.ndarray] = lambda x, size: x


OPERATIONS: dict[Operator, Operation] = {
    Operator.ADD: Operation(np.add),
    Operator.MEAN: Operation(np.add, finish=lambda x, size: (x / size).astype(x.dtype)),
    Operator.MUL: Operation(np.multiply),
    Operator.MIN: Operation(np.minimum),
    Operator.MAX: Operation(np.maximum),
    Operator.LOGICAL_AND: Operation(np.logical_and),
    Operator.LOGICAL_OR: Operation(np.logical_or),
    Operator.SQUARE_ADD: Operation(np.add, prepare=np.square),
    Operator.LOCAL: Operation(np.positive),  # its programs reduce nothing
}


class InterpreterState:
    """The buffers of one replica: its input is ``tensor``, its output ``out`` (default: a new array), both flat."""

    def __init__(self, program: StepProgram, replica: int, tensor: np.ndarray, out: np.ndarray | None = None) -> None:
        self._replica, self._width = replica, program.width
        known = {INPUT: tensor} if out is None else {INPUT: tensor, OUTPUT: out}
        rest = [name for name in program.buffers if name not in known]
        self.buffers = known | {name: np.zeros(program.fragments(name) * self._width, tensor.dtype) for name in rest}

    def view(self, part: Slice) -> np.ndarray:
        """The elements of ``part`` on this replica."""
        return self.buffers[part.buffer][part.bounds(self._replica, self._width)]


class Exchanger(Protocol):
    """Moves slices between replicas."""

    def carry(self, exchange: Exchange, states: Mapping[int, InterpreterState]) -> None:
        """Make all copies of ``exchange`` that start or end on the replicas of ``states``."""


class OneProcess:
    """The exchanger of a process that holds every replica."""

    def carry(self, exchange: Exchange, states: Mapping[int, InterpreterState]) -> None:
        parcels = [
            (receiver, copy.target, states[sender].view(copy.source).copy())
            for copy in exchange.copies
            for sender, receiver in copy.pairs()
        ]
        for receiver, target, values in parcels:
            states[receiver].view(target)[...] = values


def execute(
    program: StepProgram, states: Mapping[int, InterpreterState], exchanger: Exchanger, combine: Combine
) -> None:
    """Run ``program`` on the replicas of ``states``."""
    for step in program.steps:
        if isinstance(step, Exchange):
            exchanger.carry(step, states)
            continue
        for state in states.values():
            if isinstance(step, Reduce):
                combine(state.view(step.own), state.view(step.received), out=state.view(step.target))
            else:
                state.view(step.target)[...] = state.view(step.source)


def run(program: StepProgram, x: np.ndarray, combine: Combine = np.add, dtype: DTypeLike | None = None) -> np.ndarray:
    """Run ``program`` on ``x`` [replicas, input elements]; return [replicas, output elements].

    ``dtype`` (default: that of ``x``) is that of partial results; the result is rounded once to that of ``x``.
    """
    replicas, elements = program.group.replicas, program.input_fragments * program.width
    if x.shape != (replicas, elements):
        raise ArgumentError(f"the input has shape {list(x.shape)}; the program needs {[replicas, elements]}")
    travelling: np.ndarray[Any, Any] = x.astype(x.dtype if dtype is None else dtype)
    states = {replica: InterpreterState(program, replica, travelling[replica]) for replica in range(replicas)}
    execute(program, states, OneProcess(), combine)
    return np.stack([states[replica].buffers[OUTPUT] for replica in range(replicas)]).astype(x.dtype)
