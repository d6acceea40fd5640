"""Session runs: ``session.run`` in a thread, while the main thread waits for it or for Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ipu_emu.tensorflow.face import face
from ipu_emu.tensorflow.program.program import Program

__all__ = ["SessionRuns"]

#: Seconds between two looks for signals.
_TICK = 0.05


class SessionRuns:
    """The programs of each graph, and the error that the last run of one of them ended with."""

    @classmethod
    def add(cls, graph: Any, program: Program) -> None:
        """Note that ``program`` runs in sessions of ``graph``."""
        face().programs.setdefault(graph, []).append(program)

    @classmethod
    def has_programs(cls, graph: Any) -> bool:
        """Whether a session of ``graph`` may run a program."""
        return graph in face().programs

    @classmethod
    def listings(cls, graph: Any) -> list[str]:
        """The texts of the executables of ``graph`` that have been made."""
        return [text for program in face().programs.get(graph, ()) for text in program.listings()]

    @classmethod
    def failed(cls, error: BaseException) -> None:
        """Keep the error of a program, which TensorFlow would replace by one of its own."""
        if face().error is None:
            face().error = error

    @classmethod
    def taken(cls) -> BaseException | None:
        """Return the error that was kept, and forget it."""
        state = face()
        own, state.error = state.error, None
        return own

    @classmethod
    def run(cls, call: Callable[[], Any], translated: Callable[[BaseException], BaseException]) -> Any:
        """Return what ``call`` returns; raise the error of a program in its own class."""
        outcome: dict[str, Any] = {}
        done = threading.Event()
        cls.taken()

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
        own = cls.taken()
        if own is not None and "error" in outcome:
            raise translated(own)
        if "error" in outcome:
            raise outcome["error"]
        return outcome["result"]

    @classmethod
    def stop(cls) -> None:
        """Ask all programs to end their present run."""
        for programs in face().programs.values():
            for program in programs:
                program.stop.set()
