"""JobTrace: the launcher's own records of a job for --trace: when each instance was started, ran and ended."""

from __future__ import annotations

from popdist_py import trace
from popdist_py.trace import Category, Recorder, Span


class JobTrace:
    """Records one run of a job; without a recorder nothing."""

    def __init__(self, count: int, restart: int) -> None:
        self._recorder = trace.recorder()
        self._open: dict[int, Span] = {}
        if self._recorder:
            self._tracks = [self._recorder.track(f"instance {rank}") for rank in range(count)]
            name = "restart" if restart else "launch"
            self._recorder.instant(self._recorder.name(name, Category.LAUNCH, restart=restart))
            for rank in range(count):
                self._enter(rank, self._recorder, "start of the instance")

    def started(self, rank: int, pid: int) -> None:
        """The program of an instance runs."""
        if self._recorder:
            self._leave(rank)
            self._enter(rank, self._recorder, "program", pid=pid)

    def ended(self, rank: int, how: str) -> None:
        """The program of an instance has ended."""
        if self._recorder and rank in self._open:
            self._leave(rank)
            end = self._recorder.name("end of the instance", Category.LAUNCH, rank=rank, how=how)
            self._recorder.instant(end, track=self._tracks[rank])

    def _enter(self, rank: int, recorder: Recorder, name: str, **args: int) -> None:
        span = recorder.span(recorder.name(name, Category.LAUNCH, rank=rank, **args), track=self._tracks[rank])
        span.__enter__()
        self._open[rank] = span

    def _leave(self, rank: int) -> None:
        span = self._open.pop(rank, None)
        if span:
            span.__exit__(None, None, None)
