"""Child process: the program of an instance, its process, and the forwarding of its stdin, stdout and stderr."""

from __future__ import annotations

import functools
import os
import selectors
import signal
from collections.abc import Callable, Mapping, Sequence

from poprun_py.linux import processes
from poprun_py.linux.pipes import InputPipe, OutputPipe
from poprun_py.wire import messages

#: Bytes of output that may be on their way to the launcher; the program blocks when it has written more.
WINDOW = 1 << 19


class ChildProcess:
    """The program's process: ``pid`` is 0 before its start, ``status`` is None before its end."""

    def __init__(self) -> None:
        self.pid = 0
        self.status: int | None = None
        self.outputs: list[OutputPipe] = []
        self.input: InputPipe | None = None

    @property
    def is_running(self) -> bool:
        return bool(self.pid) and self.status is None

    def start(self, order: messages.Start, environment: Mapping[str, str]) -> None:
        """Start the program in a process group of its own; raise OSError if it cannot be started."""
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
        """Send a signal to the whole process group while the program runs."""
        if self.is_running:
            processes.kill(-self.pid, number)


class StreamForwarder:
    """Sends a program's output to the launcher, within its credit, and the launcher's input to the program.

    ``on_output`` is called with all output; once ``has_launcher`` is false, nobody else gets any.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        send: Callable[[messages.Message], None],
        *,
        has_launcher: Callable[[], bool],
        on_output: Callable[[int, bytes], None],
    ) -> None:
        self._selector, self._send, self._has_launcher, self._on_output = selector, send, has_launcher, on_output
        self._outputs: Sequence[OutputPipe] = ()
        self._input: InputPipe | None = None
        self._credit = WINDOW

    def open(self, outputs: Sequence[OutputPipe], source: InputPipe | None) -> None:
        self._outputs, self._input = outputs, source

    @property
    def has_open_outputs(self) -> bool:
        return any(output.is_open for output in self._outputs)

    def add_credit(self, amount: int) -> None:
        self._credit += amount

    def write_input(self, data: bytes) -> None:
        """Pass input on to the program; empty ``data`` closes its stdin."""
        if self._input:
            self._input.give(data)

    def update_registrations(self) -> None:
        """Register what can be handled now: outputs while there is credit, stdin while input is pending."""
        for output in self._outputs:
            self._register(output, selectors.EVENT_READ, self._credit > 0, functools.partial(self._forward, output))
        if self._input:
            self._register(self._input, selectors.EVENT_WRITE, self._input.is_waiting, self._push_input)

    def drain(self) -> None:
        """Forward the data that an ended program left in its pipes, and close its stdin."""
        for output in self._outputs:
            self._forward(output)
        if self._input:
            self._close(self._input)

    def close_outputs(self) -> None:
        """Stop waiting for other processes that hold the pipes open; without credit, output may still be in them."""
        if self._credit > 0:
            for output in self._outputs:
                self._close(output)

    def _register(self, pipe: OutputPipe | InputPipe, event: int, wanted: bool, react: Callable[[], None]) -> None:
        if not pipe.is_open:
            return
        known = pipe.fileno() in self._selector.get_map()
        if wanted and not known:
            self._selector.register(pipe, event, react)
        elif known and not wanted:
            self._selector.unregister(pipe)

    def _forward(self, output: OutputPipe) -> None:
        """Send what the pipe holds, within the credit."""
        while output.is_open and (self._credit > 0 or not self._has_launcher()):
            data = output.read()
            if data is None:
                return
            if data:
                self._credit -= len(data)
                self._on_output(output.number, data)
                self._send(messages.Output(output.number, data))
            else:
                self._close(output)

    def _push_input(self) -> None:
        if self._input and self._input.push():
            if self._input.is_finished:
                self._close(self._input)
            self._send(messages.InputTaken())

    def _close(self, pipe: OutputPipe | InputPipe) -> None:
        if pipe.is_open and pipe.fileno() in self._selector.get_map():
            self._selector.unregister(pipe)
        pipe.close()
