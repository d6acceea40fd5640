"""Streams: pass a program's output on to the launcher, within its credit, and the launcher's input to the program."""

from __future__ import annotations

import functools
import selectors
from collections.abc import Callable, Sequence

from poprun_py.linux.pipes import InputPipe, OutputPipe
from poprun_py.wire import messages

__all__ = ["WINDOW", "Streams"]

#: Bytes of output that may be on their way to the launcher; the program waits when it has written more.
WINDOW = 1 << 19


class Streams:
    """``hear`` gets all output; without a launcher (``is_heard``) nobody else does."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        tell: Callable[[messages.Message], None],
        *,
        is_heard: Callable[[], bool],
        hear: Callable[[int, bytes], None],
    ) -> None:
        self._selector, self._tell, self._is_heard, self._hear = selector, tell, is_heard, hear
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

    def give(self, data: bytes) -> None:
        """Hand input to the program; nothing at all means that the input ends."""
        if self._input:
            self._input.give(data)

    def watch(self) -> None:
        """Listen to what can be dealt with now: output while there is credit, room for input while there is some."""
        for output in self._outputs:
            self._want(output, selectors.EVENT_READ, self._credit > 0, functools.partial(self._forward, output))
        if self._input:
            self._want(self._input, selectors.EVENT_WRITE, self._input.is_waiting, self._feed)

    def drain(self) -> None:
        """Pass on what a program has written that has ended; nobody reads its input any more."""
        for output in self._outputs:
            self._forward(output)
        if self._input:
            self._drop(self._input)

    def close_outputs(self) -> None:
        """Do not wait for those who hold them open; what there is no credit for may still come."""
        if self._credit > 0:
            for output in self._outputs:
                self._drop(output)

    def _want(self, pipe: OutputPipe | InputPipe, event: int, wanted: bool, react: Callable[[], None]) -> None:
        if not pipe.is_open:
            return
        known = pipe.fileno() in self._selector.get_map()
        if wanted and not known:
            self._selector.register(pipe, event, react)
        elif known and not wanted:
            self._selector.unregister(pipe)

    def _forward(self, output: OutputPipe) -> None:
        """Pass on what the pipe holds, within the credit."""
        while output.is_open and (self._credit > 0 or not self._is_heard()):
            data = output.read()
            if data is None:
                return
            if data:
                self._credit -= len(data)
                self._hear(output.number, data)
                self._tell(messages.Output(output.number, data))
            else:
                self._drop(output)

    def _feed(self) -> None:
        if self._input and self._input.push():
            if self._input.is_finished:
                self._drop(self._input)
            self._tell(messages.InputTaken())

    def _drop(self, pipe: OutputPipe | InputPipe) -> None:
        if pipe.is_open and pipe.fileno() in self._selector.get_map():
            self._selector.unregister(pipe)
        pipe.close()
