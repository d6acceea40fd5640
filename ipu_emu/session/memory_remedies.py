"""Memory remedies: changes of a request that make a model fit its IPUs; each is compiled before it is offered.

An interface lists the possible changes in its own words: flags of a command, options of a session. A change is
applied to a request of that interface, whose type does not matter here.

    changes alone          the cheapest three that suffice
    none suffices alone    combined: the change that saves the most is added until the model fits, then those
                           that are not needed are dropped; once without and once with more IPUs
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from ipu_emu.errors import EmulatorError
from ipu_emu.session.footprint import MemoryNeed

Request = TypeVar("Request")

_MOST = 3


class RemedyKind(Enum):
    """The kinds of remedies for a program that needs too much memory, and roughly how much they slow down a step."""

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
class Change(Generic[Request]):
    """``apply`` changes a request; ``advice`` describes the change to users of the interface."""

    kind: RemedyKind
    advice: str
    apply: Callable[[Request], Request]


@dataclass(frozen=True)
class Remedy:
    """Changes that were compiled together, and the memory that the model then needs."""

    advice: tuple[str, ...]
    need: MemoryNeed

    def __str__(self) -> str:
        return f"{' and '.join(self.advice)}: {self.need}"


@dataclass(frozen=True)
class Remedies:
    """``sufficient`` make the request fit, cheapest first; if none does, ``best`` is the one that saves the most.

    ``further`` is advice that was not tried.
    """

    sufficient: tuple[Remedy, ...] = ()
    best: Remedy | None = None
    further: str = ""

    def __str__(self) -> str:
        return "\n".join(filter(None, (self._tried(), self.further)))

    def _tried(self) -> str:
        if self.sufficient:
            return "Remedies, each of which suffices:\n" + "\n".join(f"  {remedy}" for remedy in self.sufficient)
        if self.best is None:
            return "No known remedy saves memory"
        return f"No known remedy suffices. The one that saves the most is\n  {self.best}"


def find_remedies(
    request: Request,
    changes: Sequence[Change[Request]],
    need: Callable[[Request], MemoryNeed],
    *,
    now: MemoryNeed,
    progress: Callable[[str], None] = lambda text: None,
) -> Remedies:
    """Return the remedies that make ``request`` fit, which needs ``now``; ``need`` compiles a request.

    Changes of one kind are ordered from the mildest; at most one of them is used. A request that cannot be compiled
    is not a remedy.
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
        kinds = {kind: [change for change in changes if change.kind is kind] for kind in RemedyKind}
        remedies, helping = list[Remedy](), list[list[Change[Request]]]()
        for group in kinds.values():
            fitting = next((change for change in group if self.fits([change])), None)
            if fitting is not None:
                remedies.append(self.remedy([fitting]))
            elif not remedies:
                helping.append([change for change in group if self.saves([change])])
            if len(remedies) == _MOST:
                break
        if remedies:
            return Remedies(tuple(remedies))
        strongest = sorted((min(group, key=self.missing_alone) for group in helping if group), key=self.missing_alone)
        more_ipus = [change for change in strongest if change.kind is RemedyKind.MORE_IPUS]
        others = [change for change in strongest if change.kind is not RemedyKind.MORE_IPUS]
        best = [self.combined(others)] + ([self.combined(more_ipus + others)] if more_ipus else [])
        remedies = [self.remedy(self.mildest(chosen, changes)) for chosen in best if self.fits(chosen)]
        last = self.remedy(best[-1]) if best[-1] else None
        return Remedies(tuple(dict.fromkeys(remedies)), last)

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
        """Drop changes that are not needed, the most expensive first, then use the mildest that suffice."""
        for change in sorted(chosen, key=lambda change: -change.kind.value):
            rest = [other for other in chosen if other is not change]
            chosen = rest if self.fits(rest) else chosen
        for change in chosen:
            for milder in (candidate for candidate in changes if candidate.kind is change.kind):
                instead = [milder if member is change else member for member in chosen]
                if self.fits(instead):
                    chosen = instead
                    break
        return sorted(chosen, key=lambda change: change.kind.value)

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
        """The memory that is needed with ``changes``, compiled once; None if they cannot be compiled."""
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
