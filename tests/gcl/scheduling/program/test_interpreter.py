"""The interpreter on ranks: a program that runs in one process also runs on several ranks that exchange messages."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping

import numpy as np
import pytest

from gcl.core.groups import Group
from gcl.core.request import Collective
from gcl.errors import ArgumentError
from gcl.fabric.fabric import Fabric
from gcl.scheduling.methods import METHODS, Method
from gcl.scheduling.program.interpreter import InterpreterState, OneProcess, execute, run
from gcl.scheduling.program.step_program import OUTPUT, Exchange, StepProgram
from gcl.scheduling.schedule import schedule


class Mail:
    """Messages between threads that hold some replicas each: a queue per (sender, receiver), as in a transport."""

    def __init__(self) -> None:
        self._boxes: dict[tuple[int, int], queue.Queue[np.ndarray]] = {}
        self._lock = threading.Lock()

    def _box(self, sender: int, receiver: int) -> queue.Queue[np.ndarray]:
        with self._lock:
            return self._boxes.setdefault((sender, receiver), queue.Queue())

    def carry(self, exchange: Exchange, states: Mapping[int, InterpreterState]) -> None:
        for copy in exchange.copies:
            for sender, receiver in copy.pairs():
                if sender in states:
                    self._box(sender, receiver).put(states[sender].view(copy.source).copy())
        for copy in exchange.copies:
            for sender, receiver in copy.pairs():
                if receiver in states:
                    states[receiver].view(copy.target)[...] = self._box(sender, receiver).get(timeout=250)


def on_ranks(program: StepProgram, x: np.ndarray, ranks: list[list[int]]) -> np.ndarray:
    """Run ``program`` on threads that hold ``ranks`` replicas each."""
    mail, states = Mail(), [{r: InterpreterState(program, r, x[r]) for r in local} for local in ranks]
    threads = [threading.Thread(target=execute, args=(program, mine, mail, np.add)) for mine in states]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(250)
    everyone = {r: state for mine in states for r, state in mine.items()}
    return np.stack([everyone[r].buffers[OUTPUT] for r in range(len(x))])


@pytest.mark.parametrize("ranks", [[[0, 1, 2, 3], [4, 5, 6, 7]], [[0], [1, 2], [3, 4, 5, 6, 7]]])
@pytest.mark.parametrize("method", [m for m in METHODS if m is not Method.QUAD_DIRECTIONAL_RING])
def test_ranks_get_the_same_bits(method: Method, ranks: list[list[int]]) -> None:
    x = np.random.default_rng(9).random((8, 8 * 11)).astype(np.float32)
    program = schedule(Collective.REDUCE_SCATTER, Fabric(8), 88, methods=(method,)).programs[0]
    assert (on_ranks(program, x, ranks) == run(program, x)).all()


def test_partial_results_may_have_a_wider_type() -> None:
    x = np.full((4, 4), 1.0, np.float16)
    x[0] = 2048
    program = schedule(Collective.REDUCE_SCATTER, Fabric(4), 4, methods=(Method.CLOCKWISE_RING,)).programs[0]
    wide = run(program, x, dtype=np.float32)
    assert wide.dtype == np.float16
    assert wide.reshape(-1).tolist() == [2052] * 4  # 2051 rounded once
    assert run(program, x).reshape(-1).tolist() == [2052, 2048, 2052, 2048]


def test_a_result_may_have_a_place() -> None:
    program = schedule(Collective.ALL_GATHER, Fabric(2), 3, methods=(Method.CLOCKWISE_RING,)).programs[0]
    x, places = np.arange(6.0).reshape(2, 3), np.zeros((2, 6))
    states = {r: InterpreterState(program, r, x[r], places[r]) for r in range(2)}
    execute(program, states, OneProcess(), np.add)
    assert (places == x.reshape(-1)).all()


def test_the_input_must_fit() -> None:
    program = schedule(Collective.REDUCE_SCATTER, Fabric(4), 8, group=Group.all(4)).programs[0]
    with pytest.raises(ArgumentError, match=r"\[4, 7\].*\[4, 8\]"):
        run(program, np.zeros((4, 7)))
