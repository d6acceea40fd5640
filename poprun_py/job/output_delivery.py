"""Output delivery: the instances' output on its way to the screen and the log files, counted in bytes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence

from poprun_py.options.option_table import LaunchOptions
from poprun_py.output.instance_logs import InstanceLogs
from poprun_py.output.screen import Screen
from poprun_py.output.tag_colors import tag_colors
from poprun_py.output.tagged_output import TaggedOutput
from poprun_py.plan.launch_plan import LaunchPlan
from poprun_py.wire.messages import STDERR


class OutputDelivery:
    """Delivers the output of all instances; an instance may write as many bytes again as have been delivered."""

    def __init__(
        self, plan: LaunchPlan, options: LaunchOptions, screen: Screen, *, restart: int, wake: Callable[[], None]
    ) -> None:
        count = len(plan.instances)
        self._output = TaggedOutput(
            count,
            only=options.only_output_from_instance,
            stdout=screen.stdout,
            stderr=screen.stderr,
            live=screen.terminals,
            colors=tag_colors(os.environ),
            mixed=screen.is_mixed,
        )
        self._logs = InstanceLogs(options.log_dir, count, restart=restart, wake=wake) if options.log_dir else None
        self._delivered: Counter[int] = Counter()  # instance -> bytes not yet credited

    def start(self) -> None:
        """Start the thread that writes the log files."""
        if self._logs:
            self._logs.writer.start()

    def write(self, rank: int, stream: int, data: bytes) -> None:
        """Write to the screen and the log file; the bytes are delivered once both are done."""
        destinations = 2 if self._logs else 1

        def done() -> None:
            nonlocal destinations
            destinations -= 1
            if not destinations:
                self._delivered[rank] += len(data)

        self._output.write(rank, stream, data, done)
        if self._logs:
            self._logs.write(rank, stream, data, done)

    def finish(self, rank: int) -> None:
        """Write the last lines of an instance that has ended, even without a newline."""
        self._output.finish(rank)
        if self._logs:
            self._logs.finish(rank)

    def delivered(self) -> list[tuple[int, int]]:
        """Return (instance, bytes) delivered since the last call."""
        for done in self._logs.writer.written() if self._logs else ():
            done()
        delivered = list(self._delivered.items())
        self._delivered.clear()
        return delivered

    def close(self) -> str:
        """Close the log files; return what went wrong with them, if anything did."""
        if not self._logs:
            return ""
        self._logs.close()
        error = self._logs.writer.error
        return f"--log-dir {self._logs.folder} is incomplete: {error}" if error else ""

    def stderr_end(self, rank: int) -> bytes:
        """Return the end of what an instance has written to stderr."""
        return self._output.stderr_end(rank)

    def last_lines(self, rank: int) -> Sequence[bytes]:
        """Return the last lines of an instance's stderr, unless they are still in view."""
        return self._output.last_lines(rank)

    def log_of_errors(self, rank: int) -> str:
        """Return the path of the log file of an instance's stderr; empty if there is none."""
        return self._logs.path(rank, STDERR) if self._logs else ""
