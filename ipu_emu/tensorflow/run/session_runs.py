"""Session runs: ``session.run`` in a thread, while the main thread waits for it or for Ctrl-C.

The infeeds of a graph end with the last of its sessions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any
from weakref import WeakSet, ref

from ipu_emu.hostio.weights_digest import report_digest
from ipu_emu.tensorflow.run.program import Program
from ipu_emu.tensorflow.trace.frontend_state import frontend_state

#: Seconds between checks for signals.
_TICK = 0.05


def add(graph: Any, program: Program) -> None:
    """Note that ``program``, which ``graph`` holds, runs in sessions of it."""
    frontend_state().programs.setdefault(graph, []).append(ref(program))


def has_programs(graph: Any) -> bool:
    """Whether a session of ``graph`` may run a program."""
    return graph in frontend_state().programs


def _programs_of(graph: Any) -> list[Program]:
    references = frontend_state().programs.get(graph, ())
    return [program for reference in references if (program := reference()) is not None]


def listings(graph: Any) -> list[str]:
    """The texts of the executables of ``graph`` that have been made."""
    return [text for program in _programs_of(graph) for text in program.listings()]


def add_infeed(graph: Any, infeed: Any) -> None:
    """Note that sessions of ``graph`` start ``infeed``."""
    frontend_state().infeeds.setdefault(graph, WeakSet()).add(infeed)


def opened(session: Any) -> None:
    """Note a session that runs something."""
    if session.graph in frontend_state().infeeds:
        frontend_state().sessions.setdefault(session.graph, WeakSet()).add(session)


def closed(session: Any) -> None:
    """Report the digest of the variables that programs changed; stop infeeds that no other session uses."""
    written: dict[str, Any] = {}
    for program in _programs_of(session.graph):
        written |= program.written
        program.written = {}
    if written:
        report_digest(written)
    others = frontend_state().sessions.get(session.graph)
    if others is not None and session in others:
        others.discard(session)
        for infeed in [] if others else list(frontend_state().infeeds[session.graph]):
            infeed.stop()


def run(graph: Any, call: Callable[[], Any]) -> Any:
    """Return what ``call``, a run of a session of ``graph``, returns; in the main thread, Ctrl-C ends it."""
    for program in _programs_of(graph):
        program.stop.clear()  # before the run begins: a later Ctrl-C ends it also while it is compiled
    if threading.current_thread() is not threading.main_thread():
        return call()
    outcome: Future[Any] = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=work, name="session.run", daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(_TICK)
    except KeyboardInterrupt:
        stop()
        wait([outcome], 1.0)
        raise
    return outcome.result()


def stop() -> None:
    """Ask all programs to end their current run."""
    for graph in list(frontend_state().programs):
        for program in _programs_of(graph):
            program.stop.set()
