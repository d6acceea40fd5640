"""Work: a collective that was begun, with PyTorch's methods to wait for it: ``wait``, ``get_future``, ``result``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import Lock, Thread
from typing import Any, NoReturn

import torch
from torch.distributed import DistBackendError, Work
from torch.futures import Future

from gcl.errors import CollectiveTimeout, GclError, notify_supervisor


def as_dist_error(error: BaseException) -> BaseException:
    """``error`` in the class that PyTorch's programs catch; errors of the caller are unchanged.

    The supervisor of this process is notified if a peer caused it.
    """
    notify_supervisor(error)
    if isinstance(error, GclError) and not isinstance(error, ValueError):
        text = str(error).replace("or raise timeout", "or pass a longer timeout to init_process_group")
        dist_error: BaseException = DistBackendError(text)
        dist_error.__cause__ = error
        return dist_error
    return error


class Failure:
    """The value of a future that failed with ``error``; any use of it as tensors raises the error.

    ``Future.set_exception`` raises the error only for waits in Python. DDP reads the value in C++: it pickles it to
    find tensors, or prints it in an error message.
    """

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def raised(self, _: object = None) -> NoReturn:
        """Raise the error."""
        raise self._error

    __str__ = raised

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise self._error


class GclWork(Work):
    """A collective with the results ``tensors``; ``waits(seconds or None)`` waits for it, False on a time-out.

    ``settle`` publishes that it is complete, or failed; ``waits`` is None if another thread will call ``settle``.
    """

    def __init__(self, tensors: Any, waits: Callable[[float | None], bool] | None = None, what: str = "") -> None:
        super().__init__()
        self._tensors, self._waits, self.what = tensors, waits, what
        self._lock = Lock()
        self._settled = False
        self._error: BaseException | None = None
        self._future: Future[Any] | None = None
        self._source = -1
        self._settles = True
        self._done: Callable[[int], None] | None = None

    @classmethod
    def done(cls, tensors: Any) -> GclWork:
        """A collective that is complete."""
        work = cls(tensors)
        work._settled = True
        return work

    def waits_with(self, waits: Callable[[float | None], bool], *, settles: bool = True) -> None:
        """Wait with ``waits``; ``settles``: it is settled even if nobody waits."""
        self._waits, self._settles = waits, settles

    def settle(self, error: BaseException | None = None, source: int = -1) -> None:
        """Publish that it is complete, or failed with ``error``; ``source``: the rank that sent, if any."""
        with self._lock:
            if self._settled:
                return
            self._error = None if error is None else as_dist_error(error)
            self._source, self._settled = source, True
            future, done = self._future, self._done
        if done is not None and self._error is None:
            done(source)
        if future is not None:
            self._fulfil(future)

    def when_done(self, done: Callable[[int], None]) -> None:
        """Call ``done`` with the rank that sent, or -1, once it is complete; not at all if it failed."""
        with self._lock:
            if not self._settled:
                self._done = done
                return
        if self._error is None:
            done(self._source)

    @property
    def is_settled(self) -> bool:
        """Whether it is known to be complete, or to have failed."""
        return self._settled

    def waits_at_most(self, seconds: float) -> bool:
        """Wait; return whether it is complete, or has failed, within ``seconds``."""
        return self._settled or (self._waits is not None and self._waits(seconds))

    def is_completed(self) -> bool:
        """Whether ``wait`` would return, or raise, without waiting."""
        return self._settled or (self._waits is not None and self._waits(0.0))

    def is_success(self) -> bool:
        """Whether it is complete and did not fail."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """The error with which it failed, None for none."""
        return self._error

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until it is complete; raise DistBackendError if it failed, or after ``timeout`` (0: the group's)."""
        seconds = timeout.total_seconds()
        if not self._settled and self._waits is not None and not self._waits(seconds if seconds > 0 else None):
            raise as_dist_error(
                CollectiveTimeout(
                    f"{self.what} was not complete after {seconds:g} s; check what the other ranks are doing"
                )
            )
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """As ``wait``: there is no device to wait for."""
        self.wait()

    def get_future(self) -> Future[Any]:
        """A future of the result tensors."""
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = future = Future()
            settled = self._settled
        if settled:
            self._fulfil(future)
        elif not self._settles and self._waits is not None:
            Thread(target=self._waits, args=(None,), name="gcl-waiter", daemon=True).start()
        return future

    def _fulfil(self, future: Future[Any]) -> None:
        if self._error is None:
            future.set_result(self._tensors)
        else:
            failure = Failure(self._error)
            future._set_unwrap_func(failure.raised)
            future.set_result(failure)

    def result(self) -> Sequence[torch.Tensor]:
        """The result tensors."""
        return self._tensors  # type: ignore[no-any-return]

    def source_rank(self) -> int:
        """The rank that sent what was received; -1 for a collective."""
        return self._source

    _source_rank = source_rank
