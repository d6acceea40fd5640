"""Hostile tests: random kills, malformed input, foreign connections, scarce resources; all must end as documented.

    scripts/hostile                                20 minutes
    scripts/hostile --quick                        3 minutes; scripts/test takes the same turns, a test each
    scripts/hostile --only kills --minutes 5       kinds whose name begins so
    scripts/hostile --only frames --seed 12 --trials 1
    scripts/hostile --quick --turn frames.1 --turn models.1

Every trial is determined by its seed. A failure prints the command line that repeats it. Trials that depend on timing
(kills) may need several repetitions.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time

from tests.hostile.campaign import Campaign, Count, Turn, quick_turns
from tests.hostile.kind import Kind
from tests.hostile.kinds import KINDS

FULL = 20.0

#: Seconds between two lines of progress.
INTERVAL = 20.0


def main() -> int:
    options = parsed()
    turns = chosen_turns(options.turn, chosen(options.only))
    kinds = list(dict.fromkeys(turn.kind for turn in turns))
    seed = random.randrange(10**9) if options.seed is None else options.seed
    print(f"seed {seed}; {len(kinds)} kinds", flush=True)
    begin = time.monotonic()
    campaign = Campaign(kinds, seed, lambda text: print(text, flush=True), Progress(begin))
    try:
        if options.quick:
            campaign.take(turns, options.workers)
        elif options.trials:
            for kind in kinds:
                campaign.repeat(kind, options.trials)
        else:
            campaign.run((options.minutes or FULL) * 60, options.workers)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(figures(campaign.counts, seed, time.monotonic() - begin), flush=True)
    return int(any(count.failures for count in campaign.counts.values()))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/hostile",
        description=__doc__,
        epilog="kinds:\n" + "".join(f"  {kind.name:24} {kind.about}\n" for kind in KINDS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="3 minutes of all kinds, or the share of those chosen")
    parser.add_argument("--turn", metavar="KIND.N", action="append", help="of a quick run only this; repeatable")
    parser.add_argument("--minutes", type=float, help=f"run for so long instead of {FULL:g} minutes")
    parser.add_argument("--only", metavar="KIND", action="append", help="kinds whose name begins so; repeatable")
    parser.add_argument("--seed", type=int, help="of the first trial (default: a random one, which is printed)")
    parser.add_argument("--trials", type=int, help="so many trials of each kind, with successive seeds")
    parser.add_argument("--workers", type=int, default=2 * (os.cpu_count() or 1), help="trials at a time")
    return parser.parse_args()


def chosen(only: list[str] | None) -> list[Kind]:
    """The kinds that were asked for."""
    if not only:
        return list(KINDS)
    if unknown := [name for name in only if not any(kind.name.startswith(name) for kind in KINDS)]:
        names = ", ".join(kind.name for kind in KINDS)
        sys.exit(f"scripts/hostile: there is no kind {', '.join(unknown)}; the kinds are {names}")
    return [kind for kind in KINDS if kind.name.startswith(tuple(only))]


def chosen_turns(names: list[str] | None, kinds: list[Kind]) -> list[Turn]:
    """The turns of ``kinds`` in a quick run, or those of them that were asked for."""
    turns = [turn for turn in quick_turns(KINDS) if turn.kind in kinds]
    if unknown := set(names or ()).difference(turn.name for turn in turns):
        known = ", ".join(turn.name for turn in turns)
        sys.exit(f"scripts/hostile: there is no turn {', '.join(sorted(unknown))}; the turns are {known}")
    return [turn for turn in turns if names is None or turn.name in names]


class Progress:
    """Prints a line of progress at intervals."""

    def __init__(self, begin: float) -> None:
        self.begin = self.last = begin

    def __call__(self, counts: dict[str, Count]) -> None:
        now = time.monotonic()
        if now - self.last > INTERVAL:
            self.last = now
            trials = sum(count.trials for count in counts.values())
            failures = sum(count.failures for count in counts.values())
            print(f"{now - self.begin:5.0f} s  {trials:,} trials, {failures} failures", flush=True)


def figures(counts: dict[str, Count], seed: int, seconds: float) -> str:
    """The last line: all figures."""
    parts = [
        f"{name} skipped" if count.skipped else f"{name} {count.trials:,}/{count.failures}"
        for name, count in counts.items()
    ]
    trials, failures = (sum(getattr(count, which) for count in counts.values()) for which in ("trials", "failures"))
    return f"{trials:,} trials, {failures} failures in {seconds:.0f} s with seed {seed}: {', '.join(parts)}"


if __name__ == "__main__":
    sys.exit(main())
