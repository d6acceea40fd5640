"""Watched workers: an epoch of PyTorch's loader, whose error names the worker process that died."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from ipu_emu.poptorch.errors import refusal

#: Seconds to wait for the end of a worker whose connection broke.
_PATIENCE = 2.0


def watched_epoch(loader: DataLoader[Any]) -> Iterator[Any]:
    """Begin an epoch; if a worker dies, raise poptorch.Error; the next epoch starts new workers.

    PyTorch raises whichever comes first: a broken connection, or an error in its signal handler.
    """
    return _watched(loader, DataLoader.__iter__(loader))


def _watched(loader: DataLoader[Any], batches: Any) -> Iterator[Any]:
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except (OSError, EOFError, RuntimeError) as error:
            own = str(error).startswith("Caught ")  # raised by code of the data set in a worker
            fault = "" if own else _dead(list(getattr(batches, "_workers", ())))
            if not fault:
                raise
            loader._iterator = None  # discard persistent workers
            raise refusal(f"The data were not loaded: DataLoader {fault}") from error
        yield batch


def _dead(workers: list[Any]) -> str:
    """Describe the workers that ended, and how they ended."""
    end = time.monotonic() + _PATIENCE
    while True:
        with contextlib.suppress(RuntimeError):  # from PyTorch's handler, if the signal arrives now
            codes = [(number, worker.pid, worker.exitcode) for number, worker in enumerate(workers)]
            ended = [f"worker {number} (process {pid}) {way_of_ending(code)}" for number, pid, code in codes if code]
            if ended or not workers or time.monotonic() > end:
                return ", ".join(ended)
            time.sleep(0.01)


def way_of_ending(code: int) -> str:
    """Say how a process ended, from its exit code."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
