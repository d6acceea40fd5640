"""Findings: what limits a run, in words, the largest loss of its steps first, then time outside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from statistics import median

import numpy as np

from gcl.drawing.units import memory
from ipu_emu.trace.collective_calls import CollectiveCalls, collective_calls
from ipu_emu.trace.deaths import deaths
from ipu_emu.trace.pipelines.stages import StageBalance, stage_times
from ipu_emu.trace.run import Run
from ipu_emu.trace.stragglers import inside_steps, lateness, slowness
from ipu_emu.trace.time_use import IMPORTS, OTHER, TimeUse, time_uses
from popdist_py.trace.records import Category

#: The smallest fraction of the time that is a finding.
WORTH = 0.1
#: A collective of fewer bytes takes mostly fixed time.
SMALL = 64 * 1024
#: An instance is a straggler if the others wait for it in this fraction of all waiting time ...
LAST = 0.7
#: ... and if it works this many times as long as the others outside collectives.
SLOWER = 1.1
#: A pipeline is unbalanced if its busiest IPU works longer than the average by this factor.
UNBALANCED = 1.25


class Cause(Enum):
    """The cause of a limit of a run."""

    DATA = "slow data"
    OWN_WORK = "work between steps"
    STRAGGLER = "straggler"
    SMALL_MESSAGES = "many small collectives"
    COMMUNICATION = "gradient communication"
    PIPELINE = "unbalanced pipeline"
    HOST_IO = "host I/O"
    DEATH = "an instance that ended prematurely"
    NO_STEPS = "no steps"
    OUTSIDE = "time outside steps"


@dataclass(frozen=True)
class Finding:
    """A cause, the fraction of the time that it costs, a sentence about it, and advice."""

    cause: Cause
    share: float
    text: str
    advice: str


@dataclass(frozen=True)
class RunAnalysis:
    """A run, its time by category, and its findings."""

    run: Run
    uses: Sequence[TimeUse]
    collectives: Sequence[CollectiveCalls]
    stages: StageBalance | None
    findings: Sequence[Finding]

    @property
    def summary(self) -> str:
        """One sentence: the largest shares of the time while steps run, as means of all instances."""
        names = {name for use in self.uses for name in use.stepping}
        shares = {name: float(np.mean([use.share(name) for use in self.uses])) for name in names}
        largest = sorted(shares.items(), key=lambda entry: -entry[1])[:4]
        return (
            ", ".join(f"{share:.0%} {name}" for name, share in largest if share >= 0.01) or "no steps were recorded"
        )


def analyse(run: Run) -> RunAnalysis:
    """Analyse what limits a run."""
    analysis = RunAnalysis(run, time_uses(run), collective_calls(run), stage_times(run), ())
    findings = sorted((finding for rule in _RULES for finding in rule(analysis)), key=_rank)
    return RunAnalysis(run, analysis.uses, analysis.collectives, analysis.stages, findings)


def _rank(finding: Finding) -> tuple[bool, float]:
    return finding.cause is Cause.OUTSIDE, -finding.share


def _death(analysis: RunAnalysis) -> Iterator[Finding]:
    for death in deaths(analysis.run):
        yield Finding(Cause.DEATH, 1.0, death.sentence, "check its last output")


def _category(
    cause: Cause, category: Category, least: float, does: str, advice: str, analysis: RunAnalysis
) -> Iterator[Finding]:
    """Findings on the instance that spends most of its steps in a ``category``, from the share ``least`` on."""
    uses = (use for use in analysis.uses if use.steps)
    use = max(uses, key=lambda use: use.share(category.value), default=None)
    if use and (share := use.share(category.value)) >= least:
        yield Finding(cause, share, f"{share:.0%} of the time {use.process.label} {does}", advice)


_DATA = "use more workers or a cheaper preparation; `ipu-emu hostio` shows which"
_HOST_IO = "send smaller types, anchor less, or overlap host I/O with compute"


def _own_work(analysis: RunAnalysis) -> Iterator[Finding]:
    """Findings on the time of instances between steps; an instance that spends more is a straggler."""
    share = min((use.share(OTHER, Category.USER.value) for use in analysis.uses), default=0.0)
    if share >= 2 * WORTH:
        who = analysis.uses[0].process.label + " is" if len(analysis.uses) == 1 else "every instance is"
        yield Finding(
            Cause.OWN_WORK,
            share,
            f"{share:.0%} of the time {who} in the program itself, between steps",
            "prepare data in a Feed, run more batches per step, print less; mark parts with ipu_emu.trace.span",
        )


def _communication(analysis: RunAnalysis) -> Iterator[Finding]:
    """Findings on collectives: a straggler that the others wait for, many small collectives, or many bytes."""
    seconds = [use.stepping_seconds for use in analysis.uses]
    if len(analysis.uses) < 2 or not all(seconds):
        return
    waits, moves, small, late = (np.zeros(len(seconds)) for _ in range(4))
    number = 0
    for calls in analysis.collectives:
        on = list(calls.instances)
        inside = inside_steps(calls, analysis.uses)
        waits[on] += calls.waits[inside].sum(0)
        moves[on] += calls.moves[inside].sum(0)
        late[on] += lateness(calls, inside)
        if calls.nbytes < SMALL:
            number += int(inside.sum())
            small[on] += calls.moves[inside].sum(0)
    waiting, moving, little = (float(np.mean(values / 1e9 / seconds)) for values in (waits, moves, small))
    slow = int(np.argmax(late))
    factor, most = slowness(analysis.uses, slow), _excess(analysis, slow)
    is_late = waiting >= WORTH / 2 and late[slow] >= LAST * late.sum() and factor >= SLOWER
    if is_late and most != Category.DATA.value:  # which has a separate finding
        label, host = analysis.uses[slow].process.label, analysis.uses[slow].process.host
        share = waiting * len(seconds) / (len(seconds) - 1)
        yield Finding(
            Cause.STRAGGLER,
            share,
            f"{share:.0%} of their time the others wait in collectives for {label} on {host}: it is slower by "
            f"{factor:.1f}x, mostly in {most}",
            "check what else runs on its host, and whether its share of the work or of the data is larger",
        )
    steps = max(use.steps for use in analysis.uses)
    if little >= WORTH and number > 4 * steps:
        sizes = sorted({calls.nbytes for calls in analysis.collectives if calls.nbytes < SMALL})
        size = f"{memory(sizes[0])}" if len(sizes) == 1 else f"{memory(sizes[0])} to {memory(sizes[-1])}"
        yield Finding(
            Cause.SMALL_MESSAGES,
            little,
            f"{little:.0%} of the time goes to collectives of {size}, {number / steps:.0f} per step",
            "merge them: pass a list of tensors, or larger buckets",
        )
    elif moving >= 2 * WORTH:
        yield Finding(
            Cause.COMMUNICATION,
            moving,
            f"{moving:.0%} of the time collectives transfer data",
            "accumulate more gradients per step, or reduce in FLOAT16",
        )


def _excess(analysis: RunAnalysis, slow: int) -> str:
    """The category with the largest excess of an instance's time over that of the others."""
    others = [use.stepping for index, use in enumerate(analysis.uses) if index != slow]
    excess = {
        name: seconds - median(use.get(name, 0.0) for use in others)
        for name, seconds in analysis.uses[slow].stepping.items()
        if name != Category.COLLECTIVES.value
    }
    return max(excess, key=lambda name: excess[name], default=OTHER)


def _pipeline(analysis: RunAnalysis) -> Iterator[Finding]:
    if analysis.stages and analysis.stages.imbalance >= UNBALANCED:
        slowest = analysis.stages.slowest
        share = 1 - 1 / analysis.stages.imbalance
        yield Finding(
            Cause.PIPELINE,
            share,
            f"IPU {slowest} of the pipeline works {analysis.stages.imbalance:.1f} times as long as the average one: "
            f"the others wait {share:.0%} of the time",
            f"move ops from IPU {slowest} to its neighbours",
        )


def _outside(analysis: RunAnalysis) -> Iterator[Finding]:
    """Findings on a run without steps, or of which much is not spent in steps."""
    uses = [use for use in analysis.uses if use.seconds]
    if not any(use.steps for use in uses):
        yield Finding(
            Cause.NO_STEPS, 1.0, "no step was recorded, so nothing is known about steps", "trace a run with steps"
        )
        return
    use = max(uses, key=lambda use: 1 - use.stepping_seconds / use.seconds)
    share, start = 1 - use.stepping_seconds / use.seconds, use.categories.get(IMPORTS, 0.0) / use.seconds
    if share >= WORTH:
        yield Finding(
            Cause.OUTSIDE,
            share,
            f"{share:.0%} of the life of {use.process.label} is before its first step and after its last"
            + (f"; {start:.0%} is the {IMPORTS}" if start >= WORTH else ""),
            "run more steps in a process, and keep compiled programs in a cache",
        )


_RULES: Sequence[Callable[[RunAnalysis], Iterator[Finding]]] = (
    _death,
    partial(_category, Cause.DATA, Category.DATA, WORTH, "waits for data", _DATA),
    _own_work,
    _communication,
    _pipeline,
    partial(_category, Cause.HOST_IO, Category.HOST_IO, 2 * WORTH, "copies data between host and IPU", _HOST_IO),
    _outside,
)
