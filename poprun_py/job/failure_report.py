"""Explanation: why a job failed, said last, where people look."""

from __future__ import annotations

from collections.abc import Iterable

from poprun_py.job.failure import End
from poprun_py.job.job_state import Job
from poprun_py.job.output_delivery import Delivery
from poprun_py.output.screen import Screen
from poprun_py.output.tagged_output import LAST_LINES
from poprun_py.output.uncaught_exception import find_uncaught

__all__ = ["Teller", "explain"]

_BOLD_RED, _PLAIN = b"\x1b[1;31m", b"\x1b[0m"


class Teller:
    """Says what the launcher itself has to say, on stderr."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def say(self, text: str, emphasised: str = "") -> None:
        loud = emphasised.encode(errors="surrogateescape")
        if loud and self._screen.has_color:
            loud = _BOLD_RED + loud + _PLAIN
        self._screen.stderr(f"poprun-py: {text}".encode(errors="surrogateescape") + loud + b"\n")

    def quote(self, what: str, lines: Iterable[bytes]) -> None:
        """The last of ``lines``, indented; nothing where they are empty."""
        shown = [line for line in lines if line.strip()][-LAST_LINES:]
        if shown:
            self.say(f"{what}:")
            self._screen.stderr(b"".join(b"    " + line + b"\n" for line in shown))


def explain(job: Job, delivery: Delivery, teller: Teller, *, starter: str, words: Iterable[bytes]) -> None:
    """Say why ``job`` failed, if it did and the user did not end it; ``words`` are what ``starter`` wrote."""
    failure = job.failure
    if job.user_signal:
        return
    if job.why or (failure and failure.lost):
        teller.say(job.why or str(failure))
        teller.quote(f"{starter} wrote last", b"".join(words).split(b"\n"))
    elif failure:
        _explain_failure(failure, delivery, teller)


def _explain_failure(failure: End, delivery: Delivery, teller: Teller) -> None:
    rank = failure.instance.index
    raised = find_uncaught(delivery.kept(rank)) if failure.exit_code == 1 else None
    teller.say(str(failure) + (": " if raised else ""), str(raised or ""))
    path = delivery.log_of_errors(rank)
    where = f" (all of it: {path})" if path else ""
    teller.quote(f"instance {rank} wrote last to stderr{where}", delivery.last_lines(rank))
