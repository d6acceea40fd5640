"""Progress bar: epoch, step, loss and rate, on one line of a terminal or one line an epoch elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 20
#: Seconds between two changes of the line.
_INTERVAL = 0.1


class ProgressBar:
    """A progress bar of ``total`` steps (None: unknown); nothing is written unless ``shown``.

    [########............]  40 %   epoch 4 of 10   loss 0.2193   51,204 samples/s
    """

    def __init__(self, epochs: int, total: int | None, *, shown: bool, file: TextIO | None = None) -> None:
        self._epochs, self._total, self._shown = epochs, total, shown
        self._file = sys.stderr if file is None else file
        self._alive = self._file.isatty()
        self._started, self._next = 0.0, 0.0
        self._samples, self._open = 0, False

    def step(self, epoch: int, step: int, loss: float, samples: int) -> None:
        """Show that ``step`` steps are done, the last with ``samples`` samples."""
        now = time.monotonic()
        if not self._started:  # compilation is complete
            self._started = now
        else:
            self._samples += samples
        if self._shown and self._alive and now >= self._next:
            self._next = now + _INTERVAL
            self._file.write("\r" + self._line(epoch, step, loss))
            self._file.flush()
            self._open = True

    def epoch(self, epoch: int, step: int, loss: float) -> None:
        """Show the end of an epoch with its mean loss."""
        if self._shown:
            self._file.write(("\r" if self._alive else "") + self._line(epoch, step, loss) + "\n")
            self._file.flush()
            self._open = False

    def close(self) -> None:
        """End a line that is not complete."""
        if self._open:
            self._file.write("\n")
            self._file.flush()

    def _line(self, epoch: int, step: int, loss: float) -> str:
        share = epoch / self._epochs if not self._total else step / self._total
        done = min(int(share * _WIDTH), _WIDTH)
        rate = f"   {self._samples / max(time.monotonic() - self._started, 1e-9):,.0f} samples/s"
        bar = f"[{'#' * done}{'.' * (_WIDTH - done)}] {100 * share:3.0f} %"
        return f"{bar}   epoch {epoch} of {self._epochs}   loss {loss:.4f}{rate if self._samples else ''}"
