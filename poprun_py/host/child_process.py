"""Child: the process of an instance, with the ends of its stdin, stdout and stderr that its supervisor holds."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from poprun_py.linux import processes
from poprun_py.linux.pipes import InputPipe, OutputPipe
from poprun_py.wire import messages

__all__ = ["Child"]


class Child:
    """``pid`` is 0 before the start, ``status`` None before the end."""

    def __init__(self) -> None:
        self.pid = 0
        self.status: int | None = None
        self.outputs: list[OutputPipe] = []
        self.input: InputPipe | None = None

    @property
    def is_running(self) -> bool:
        return bool(self.pid) and self.status is None

    def start(self, order: messages.Start, environment: Mapping[str, str]) -> None:
        """Start it, in this process group; raise OSError where that cannot be."""
        null = os.open(os.devnull, os.O_RDWR)
        source, feed = os.pipe() if order.has_input else (null, -1)
        pipes = [os.pipe(), os.pipe()]
        self.outputs = [OutputPipe(number, pipe[0]) for number, pipe in enumerate(pipes, start=1)]
        self.input = InputPipe(feed) if order.has_input else None
        try:
            self.pid = processes.spawn(
                order.argv,
                executable=order.executable,
                environment={**os.environ, **order.environment, **environment},
                cwd=order.cwd,
                streams=(source, pipes[0][1], pipes[1][1]),
                session=False,
                death_signal=signal.SIGKILL,
            )
        finally:
            for descriptor in {null, source, pipes[0][1], pipes[1][1]}:
                os.close(descriptor)

    def signal(self, number: int) -> None:
        """To it and all in its group, while it runs."""
        if self.is_running:
            processes.kill_group(self.pid, number)
