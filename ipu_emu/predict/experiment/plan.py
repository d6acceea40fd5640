"""Plan of an experiment: the configurations in which a program is measured, chosen for this machine, and the time.

    2 cores     1x1  1x2  2x2  1x4  2x4  4x4       instances x replicas
    16 cores    1x1  1x4  4x4  1x16 4x16 16x16

The program is unchanged: it takes its replicas from the launcher. {accumulation}, {instances} and {replicas} in its
arguments are replaced by the numbers of a configuration.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, product
from typing import Any

from ipu_emu.errors import EmulatorError

_HOSTS = ("--host", "-H")
_ACCUMULATION = "{accumulation}"


@dataclass(frozen=True, order=True)
class Configuration:
    """``replicas`` on ``instances``; ``accumulation``: what replaces {accumulation}, 1 without it."""

    replicas: int
    instances: int
    accumulation: int = 1

    @property
    def name(self) -> str:
        """``2x4``, or ``2x4 GA 2``."""
        return f"{self.instances}x{self.replicas}" + (f" GA {self.accumulation}" if self.accumulation > 1 else "")


@dataclass(frozen=True)
class Plan:
    """``program`` in each of the ``configurations`` for about ``seconds``; ``cores`` of one host.

    ``launcher``: more options of poprun-py. ``timeout``: seconds that one run may take to its first steps. ``batch``:
    samples of a micro-batch, 0 if the recorder tells. ``scaling``: weak, strong, or "" for what is observed.
    """

    program: tuple[str, ...]
    configurations: tuple[Configuration, ...]
    seconds: float = 75.0
    launcher: tuple[str, ...] = ()
    timeout: float = 600.0
    batch: int = 0
    scaling: str = ""
    cores: int = 1

    def __post_init__(self) -> None:
        if not self.program:
            raise EmulatorError("--run needs a program, such as --run -- python train.py")
        if len(self.configurations) < 2:
            raise EmulatorError("--sizes has one configuration; give two at least, such as 1x1,2x2")
        if not 0 < self.timeout <= threading.TIMEOUT_MAX:
            raise EmulatorError(f"--timeout {self.timeout:g} is not possible; use a number of seconds above 0")
        if ranges := next((word for word in self.launcher if "[" in word), None):
            raise EmulatorError(
                f"--launcher {ranges}: a range of hosts; write each host, such as --host n0,n1, because measurements "
                "take as many of them as they have instances"
            )

    @classmethod
    def of(cls, program: Sequence[str], sizes: str, accumulations: Sequence[int], **options: Any) -> Plan:
        """The plan for this machine; ``sizes`` "" chooses configurations."""
        cores = len(os.sched_getaffinity(0))
        counts = sorted(set(accumulations)) if any(_ACCUMULATION in word for word in program) else [1]
        pairs = _pairs(sizes) if sizes else chosen_sizes(cores, few=len(counts) > 1)
        chosen = [
            Configuration(replicas, instances, count) for (instances, replicas), count in product(pairs, counts)
        ]
        return cls(tuple(program), tuple(sorted(chosen)), cores=cores, **options)

    @property
    def base(self) -> Configuration:
        """The smallest configuration, which speed-ups are relative to."""
        return self.configurations[0]

    @property
    def name(self) -> str:
        """The file name of the program."""
        words = [word for word in self.program if word.endswith(".py")]
        return os.path.basename((words or self.program)[0])

    def hosts(self, instances: int) -> int:
        """The hosts of so many instances."""
        return len(set(self._hosts()[:instances])) or 1

    def processors(self, lanes: int, instances: int) -> int:
        """The cores that so many replicas at a time use."""
        return min(lanes, self.cores * self.hosts(instances))

    def command(self, configuration: Configuration, options: Sequence[str] = ()) -> list[str]:
        """The command of one measurement."""
        words = list(self.program)
        for name in ("accumulation", "instances", "replicas"):
            words = [word.replace(f"{{{name}}}", str(getattr(configuration, name))) for word in words]
        python = [sys.executable] if words[0].endswith(".py") else []
        sizes = ["--num-instances", str(configuration.instances), "--num-replicas", str(configuration.replicas)]
        launcher = self._launcher(configuration.instances)
        return [sys.executable, "-m", "poprun_py", *sizes, *options, *launcher, *python, *words]

    def _words(self) -> list[str]:
        """The launcher's options, with ``--host=a,b`` as two words."""
        pairs = [word.split("=", 1) if word.startswith(("--host=", "-H=")) else [word] for word in self.launcher]
        return [*chain(*pairs)]

    def _hosts(self) -> list[str]:
        values = [word for before, word in pairwise(self._words()) if before in _HOSTS]
        return values[-1].split(",") if values else []

    def _launcher(self, instances: int) -> list[str]:
        """The launcher's options; --host gets at most as many hosts as there are instances."""
        some = ",".join(self._hosts()[:instances])
        return [some if before in _HOSTS else word for before, word in pairwise(["", *self._words()])]

    def text(self) -> str:
        """What will be done, and how long."""
        names = ", ".join(configuration.name for configuration in self.configurations)
        return (
            f"{shlex.join(self.program)} on {self.cores} cores, in {len(self.configurations)} configurations of "
            f"instances x replicas: {names}.\nEach is run once to compile and load, then in turns, for about "
            f"{self.seconds:g} s in all."
        )


def chosen_sizes(cores: int, *, few: bool = False) -> list[tuple[int, int]]:
    """(instances, replicas) for a machine: the powers of two up to its cores, at least 4, of which three are taken.

    ``few``: only as many instances as replicas, up to the cores.
    """
    power = max(2, cores.bit_length() - 1)
    counts = [1, 1 << power // 2, 1 << power]
    if few:
        return [(1, 1), (min(counts[1], cores), counts[1])]
    return [(instances, replicas) for replicas in counts for instances in counts if instances <= replicas]


def _pairs(text: str) -> list[tuple[int, int]]:
    """The pairs in ``1x1,2x4``."""
    try:
        pairs = sorted({(int(a), int(b)) for a, b in (word.split("x") for word in text.split(","))})
        if any(instances < 1 or replicas % instances or not replicas for instances, replicas in pairs):
            raise ValueError
    except ValueError:
        raise EmulatorError(
            f"--sizes {text}: not a list of instances x replicas, of which instances divide replicas; use for "
            "example 1x1,1x2,2x2"
        ) from None
    return pairs
