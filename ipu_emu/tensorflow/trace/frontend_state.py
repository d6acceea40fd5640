"""Front end state: what a program has configured through the modules for the IPU.

The finder of these modules holds it, from its installation to its removal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from ipu_emu.errors import EmulatorError


@dataclass
class FrontendState:
    """``devices``, ``traces``, ``strategies``, ``reducing`` and ``captures`` are stacks of open scopes, the innermost
    one last.

    ``seed``: the seed of random numbers; ``seeded``: how often it was set. ``programs``, ``infeeds`` and
    ``sessions``: by graph. ``errors``: of host calls, not raised yet, by number. ``collectives``: of the host.
    ``replaced``: the originals of patched attributes.
    """

    devices: list[int] = field(default_factory=list)
    traces: list[Any] = field(default_factory=list)
    strategies: list[Any] = field(default_factory=list)
    reducing: list[bool] = field(default_factory=list)
    captures: list[Any] = field(default_factory=list)
    system: Any = None
    seed: int = 0
    seeded: int = 0
    programs: WeakKeyDictionary[Any, list[ref[Any]]] = field(default_factory=WeakKeyDictionary)
    infeeds: WeakKeyDictionary[Any, WeakSet[Any]] = field(default_factory=WeakKeyDictionary)
    sessions: WeakKeyDictionary[Any, WeakSet[Any]] = field(default_factory=WeakKeyDictionary)
    errors: dict[str, BaseException] = field(default_factory=dict)
    collectives: Any = None
    replaced: list[Any] = field(default_factory=list)


def frontend_state() -> FrontendState:
    """The state of the installed front end; raise EmulatorError if none is installed."""
    for finder in sys.meta_path:
        state = getattr(finder, "state", None)
        if isinstance(state, FrontendState):
            return state
    raise EmulatorError(
        "TensorFlow for the IPU is not installed in this process; import ipu_emu.tensorflow.install first"
    )


@contextmanager
def pushed(scopes: list[Any], value: Any) -> Iterator[None]:
    """Keep ``value`` on a stack of open scopes in the ``with`` block."""
    scopes.append(value)
    try:
        yield
    finally:
        scopes.pop()


def set_seed(value: int) -> None:
    """Set the seed; programs start counting their runs anew."""
    state = frontend_state()
    state.seed, state.seeded = value & 0xFFFFFFFFFFFFFFFF, state.seeded + 1


def seed() -> tuple[int, int]:
    """The seed, and how often it was set."""
    state = frontend_state()
    return state.seed, state.seeded
