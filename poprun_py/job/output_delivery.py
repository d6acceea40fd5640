"""Delivery: brings what the instances write to the screen and into files, and counts what has arrived there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from poprun_py.options.option_table import LaunchOptions
from poprun_py.output.instance_logs import Files
from poprun_py.output.screen import Screen
from poprun_py.output.tagged_output import STDERR, Output
from poprun_py.plan.launch_plan import LaunchPlan

__all__ = ["Delivery"]


class Delivery:
    """The output of all instances; an instance may write as much again as has been delivered."""

    def __init__(
        self, plan: LaunchPlan, options: LaunchOptions, screen: Screen, *, restart: int, nudge: Callable[[], None]
    ) -> None:
        count = len(plan.instances)
        self._output = Output(
            count,
            only=options.only_output_from_instance,
            stdout=screen.stdout,
            stderr=screen.stderr,
            live=screen.terminals,
            mixed=screen.is_mixed,
        )
        self._files = Files(options.log_dir, count, restart=restart, nudge=nudge) if options.log_dir else None
        self._delivered: Counter[int] = Counter()  # instance -> bytes not told yet

    def start(self) -> None:
        """Start the thread that writes files."""
        if self._files:
            self._files.start()

    def take(self, rank: int, stream: int, data: bytes) -> None:
        """Show it and keep it; it is delivered once both are done."""
        places = 2 if self._files else 1

        def done() -> None:
            nonlocal places
            places -= 1
            if not places:
                self._delivered[rank] += len(data)

        self._output.write(rank, stream, data, done)
        if self._files:
            self._files.write(rank, stream, data, done)

    def finish(self, rank: int) -> None:
        """No more will come from this instance."""
        self._output.finish(rank)
        if self._files:
            self._files.finish(rank)

    def delivered(self) -> list[tuple[int, int]]:
        """(instance, bytes) that were delivered since the last call."""
        for done in self._files.written() if self._files else ():
            done()
        delivered = list(self._delivered.items())
        self._delivered.clear()
        return delivered

    def close(self) -> str:
        """Close the files; what went wrong with them, if anything did."""
        if not self._files:
            return ""
        self._files.close()
        return f"--log-dir {self._files.folder} is incomplete: {self._files.error}" if self._files.error else ""

    def kept(self, rank: int) -> bytes:
        """What an instance wrote last to stderr."""
        return self._output.kept(rank)

    def last_lines(self, rank: int) -> Sequence[bytes]:
        """The last lines of that, where they are not on the screen already."""
        return self._output.last_lines(rank)

    def log_of_errors(self, rank: int) -> str:
        """The file that holds all of it, if there is one."""
        return self._files.path(rank, STDERR) if self._files else ""
