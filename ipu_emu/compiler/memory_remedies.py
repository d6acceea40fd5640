"""Memory remedies: changes of what is compiled by which a model fits its IPUs; each is compiled before it is offered.

An interface says what can be changed, in its own words: the flag of a command, the option of a session. What is
changed is a request of that interface, which nothing here looks into.

    changes alone          the cheapest three that suffice
    none suffices alone    combined: what saves most is added until the model fits, then what is not needed is
                           dropped; once without and once with more IPUs
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from gcl.drawing.units import memory
from ipu_emu.errors import EmulatorError

__all__ = ["Change", "MemoryNeed", "Remedies", "Remedy", "RemedyKind", "find_remedies"]

Request = TypeVar("Request")

_MOST = 3


class RemedyKind(Enum):
    """What can be done about a program that needs too much memory, and roughly how much slower a step becomes."""

    STATES_SHARDED = 0.02
    STATES_OFF_CHIP = 0.1
    MICRO_BATCH = 0.15
    FLOAT16 = 0.2
    RECOMPUTE = 0.3
    ACCUMULATORS_OFF_CHIP = 0.4
    ACTIVATIONS_OFF_CHIP = 0.5
    WEIGHTS_OFF_CHIP = 0.6
    MORE_IPUS = 1.0


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that the fullest IPU of a replica needs and has; ``streaming`` is what Streaming Memory lacks."""

    ipu: int
    nbytes: int
    limit: int
    streaming: int = 0

    @property
    def missing(self) -> int:
        """Bytes that are too few; negative where some are free."""
        return self.nbytes - self.limit + self.streaming

    @property
    def fits(self) -> bool:
        return self.nbytes <= self.limit and not self.streaming

    def __str__(self) -> str:
        return f"{memory(self.nbytes)} of {memory(self.limit)} on IPU {self.ipu}, the fullest"


@dataclass(frozen=True)
class Change(Generic[Request]):
    """``advice`` says to users of the interface what ``apply`` does to a request."""

    kind: RemedyKind
    advice: str
    apply: Callable[[Request], Request]


@dataclass(frozen=True)
class Remedy:
    """Changes that were compiled together, and the memory that is needed then."""

    advice: tuple[str, ...]
    need: MemoryNeed

    def __str__(self) -> str:
        return f"{' and '.join(self.advice)}: {self.need}"


@dataclass(frozen=True)
class Remedies:
    """``found`` suffice, cheapest first; ``best`` is what saves most where none does."""

    found: tuple[Remedy, ...] = ()
    best: Remedy | None = None

    def __str__(self) -> str:
        if self.found:
            return "Remedies, each of which suffices:\n" + "\n".join(f"  {remedy}" for remedy in self.found)
        if self.best is None:
            return "No remedy that is known here saves memory"
        return f"No remedy that is known here suffices. What saves most is\n  {self.best}"


def find_remedies(
    request: Request,
    changes: Sequence[Change[Request]],
    need: Callable[[Request], MemoryNeed],
    *,
    now: MemoryNeed,
    progress: Callable[[str], None] = lambda text: None,
) -> Remedies:
    """Return what makes ``request`` fit, which needs ``now``; ``need`` compiles a request.

    Of several changes of a kind the mildest come first; one of them is used at most. A request that cannot be
    compiled is no remedy.
    """
    return _Search(request, need, now, progress).run(changes)


class _Search(Generic[Request]):
    def __init__(
        self,
        request: Request,
        need: Callable[[Request], MemoryNeed],
        now: MemoryNeed,
        progress: Callable[[str], None],
    ) -> None:
        self.request, self.need, self.now, self.progress = request, need, now, progress
        self.known: dict[frozenset[str], MemoryNeed | None] = {frozenset(): now}

    def run(self, changes: Sequence[Change[Request]]) -> Remedies:
        kinds = {kind: [one for one in changes if one.kind is kind] for kind in RemedyKind}
        found, helping = list[Remedy](), list[list[Change[Request]]]()
        for group in kinds.values():
            fitting = next((one for one in group if self.fits([one])), None)
            if fitting is not None:
                found.append(self.remedy([fitting]))
            elif not found:
                helping.append([one for one in group if self.saves([one])])
            if len(found) == _MOST:
                break
        if found:
            return Remedies(tuple(found))
        strongest = sorted((min(group, key=self.missing_alone) for group in helping if group), key=self.missing_alone)
        more_ipus = [one for one in strongest if one.kind is RemedyKind.MORE_IPUS]
        others = [one for one in strongest if one.kind is not RemedyKind.MORE_IPUS]
        best = [self.combined(others)] + ([self.combined(more_ipus + others)] if more_ipus else [])
        found = [self.remedy(self.mildest(chosen, changes)) for chosen in best if self.fits(chosen)]
        last = self.remedy(best[-1]) if best[-1] else None
        return Remedies(tuple(dict.fromkeys(found)), last)

    def combined(self, changes: Iterable[Change[Request]]) -> list[Change[Request]]:
        """Return as many of ``changes`` as the model needs to fit, or all that save something."""
        chosen: list[Change[Request]] = []
        for change in changes:
            if self.saves([*chosen, change], than=chosen):
                chosen.append(change)
            if self.fits(chosen):
                break
        return chosen

    def mildest(self, chosen: list[Change[Request]], changes: Sequence[Change[Request]]) -> list[Change[Request]]:
        """Drop what is not needed of ``chosen``, the dearest first, then take the mildest of each kind that do."""
        for change in sorted(chosen, key=lambda one: -one.kind.value):
            rest = [one for one in chosen if one is not change]
            chosen = rest if self.fits(rest) else chosen
        for change in chosen:
            for milder in (one for one in changes if one.kind is change.kind):
                instead = [milder if one is change else one for one in chosen]
                if self.fits(instead):
                    chosen = instead
                    break
        return sorted(chosen, key=lambda one: one.kind.value)

    def remedy(self, changes: Sequence[Change[Request]]) -> Remedy:
        need = self.of(changes)
        assert need is not None
        return Remedy(tuple(change.advice for change in changes), need)

    def fits(self, changes: Sequence[Change[Request]]) -> bool:
        need = self.of(changes)
        return need is not None and need.fits

    def saves(self, changes: Sequence[Change[Request]], than: Sequence[Change[Request]] = ()) -> bool:
        need, before = self.of(changes), self.of(than)
        return need is not None and before is not None and need.missing < before.missing

    def missing_alone(self, change: Change[Request]) -> int:
        need = self.of([change])
        assert need is not None
        return need.missing

    def of(self, changes: Sequence[Change[Request]]) -> MemoryNeed | None:
        """What is needed with ``changes``, compiled once; None where that cannot be compiled."""
        key = frozenset(change.advice for change in changes)
        if key not in self.known:
            self.progress(" and ".join(change.advice for change in changes))
            request = self.request
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for change in changes:
                        request = change.apply(request)
                    self.known[key] = self.need(request)
            except EmulatorError:
                self.known[key] = None
        return self.known[key]
