"""Session runs: ``session.run`` in a thread, while the main thread waits for it or for Ctrl-C.

The infeeds of a graph end with the last of its sessions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet, ref

from ipu_emu.hostio.weights_digest import report_digest
from ipu_emu.tensorflow.run.program import Program
from ipu_emu.tensorflow.trace.frontend_state import frontend_state

#: Seconds between checks for signals.
_TICK = 0.05


class SessionRuns:
    """The programs of each graph, and how a session runs them."""

    @classmethod
    def add(cls, graph: Any, program: Program) -> None:
        """Note that ``program``, which ``graph`` holds, runs in sessions of it."""
        frontend_state().programs.setdefault(graph, []).append(ref(program))

    @classmethod
    def has_programs(cls, graph: Any) -> bool:
        """Whether a session of ``graph`` may run a program."""
        return graph in frontend_state().programs

    @classmethod
    def programs(cls) -> dict[Any, list[Program]]:
        """The programs of each graph."""
        return {
            graph: [program for reference in held if (program := reference()) is not None]
            for graph, held in frontend_state().programs.items()
        }

    @classmethod
    def listings(cls, graph: Any) -> list[str]:
        """The texts of the executables of ``graph`` that have been made."""
        return [text for program in cls.programs().get(graph, ()) for text in program.listings()]

    @classmethod
    def add_infeed(cls, graph: Any, infeed: Any) -> None:
        """Note that sessions of ``graph`` start ``infeed``."""
        frontend_state().infeeds.setdefault(graph, WeakSet()).add(infeed)

    @classmethod
    def opened(cls, session: Any) -> None:
        """Note a session that runs something."""
        if session.graph in frontend_state().infeeds:
            frontend_state().sessions.setdefault(session.graph, WeakSet()).add(session)

    @classmethod
    def closed(cls, session: Any) -> None:
        """Report the digest of the variables that programs changed; stop infeeds that no other session uses."""
        written: dict[str, Any] = {}
        for program in cls.programs().get(session.graph, ()):
            written |= program.written
            program.written = {}
        if written:
            report_digest(written)
        others = frontend_state().sessions.get(session.graph)
        if others is not None and session in others:
            others.discard(session)
            for infeed in [] if others else list(frontend_state().infeeds[session.graph]):
                infeed.stop()

    @classmethod
    def run(cls, call: Callable[[], Any]) -> Any:
        """Return what ``call`` returns, in a thread of its own where Ctrl-C can end it."""
        if threading.current_thread() is not threading.main_thread():
            return call()
        outcome: dict[str, Any] = {}
        done = threading.Event()

        def work() -> None:
            try:
                outcome["result"] = call()
            except BaseException as error:
                outcome["error"] = error
            finally:
                done.set()

        thread = threading.Thread(target=work, name="session.run", daemon=True)
        thread.start()
        try:
            while not done.wait(_TICK):
                pass
        except KeyboardInterrupt:
            cls.stop()
            done.wait(1.0)
            raise
        thread.join()
        if "error" in outcome:
            raise outcome["error"]
        return outcome["result"]

    @classmethod
    def stop(cls) -> None:
        """Ask all programs to end their current run."""
        for programs in cls.programs().values():
            for program in programs:
                program.stop.set()
