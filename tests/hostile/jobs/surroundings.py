"""Surroundings: jobs without enough of a resource: disk, shared memory, descriptors, memory, HOME, rights."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.isolation import cover
from tests.hostile.jobs.kills import mpi_named
from tests.hostile.jobs.outcome import RunningJob
from tests.hostile.kind import Trial, Unavailable

__all__ = ["homes", "scarce_descriptors", "scarce_disk", "scarce_memory", "scarce_shared_memory", "users"]

#: A user who owns no files.
_NOBODY = 65534


def _drawn(dice: random.Random) -> str:
    """The value of --mpi, drawn from those that are installed."""
    try:
        return mpi_named(dice.choice(["mpich", "openmpi"]))
    except Unavailable:
        return mpi_named("mpich")


def _told(about: str, faults: Sequence[str]) -> list[str]:
    return [about, *faults] if faults else []


@contextmanager
def _tiny(folder: str, size: str, full: bool) -> Iterator[None]:
    """A file system of ``size`` on ``folder``; with ``full`` it has no free space."""
    _run("mount", "-t", "tmpfs", "-o", f"mode=1777,size={size}", "tmpfs", folder)
    try:
        if full:
            with contextlib.suppress(OSError), open(f"{folder}/filling", "wb", buffering=0) as file:
                while file.write(bytes(1 << 16)):
                    continue
        yield
    finally:
        _run("umount", "-l", folder)


@contextmanager
def scarce_disk() -> Iterator[Trial]:
    """A tiny or full disk below the temporary folder, the log folder or the cache."""

    def trial(dice: random.Random) -> list[str]:
        size, full = dice.choice(["4k", "16k", "64k", "256k", "1m"]), dice.random() < 0.5
        with tempfile.TemporaryDirectory() as folder, _tiny(folder, size, full):
            options, environ = dice.choice(
                [
                    ((), {"TMPDIR": folder}),
                    (("--log-dir", f"{folder}/logs"), {}),
                    (("--executable-cache-path", f"{folder}/cache"), {}),
                    ((), {"HOME": folder, "XDG_CACHE_HOME": folder, "XDG_STATE_HOME": folder}),
                    (("--vipu-partition", "p"), {"XDG_STATE_HOME": folder}),
                ]
            )
            job = RunningJob(_drawn(dice), options, environ=environ)
            return _told(f"{size}, full: {full}, {options}, {environ}", job.faults())

    yield trial


@contextmanager
def scarce_shared_memory() -> Iterator[Trial]:
    def trial(dice: random.Random) -> list[str]:
        size, full = dice.choice(["4k", "64k", "1m", "4m", "16m", "64m", "256m"]), dice.random() < 0.3
        with _tiny("/dev/shm", size, full):
            return _told(f"/dev/shm of {size}, full: {full}", RunningJob(_drawn(dice)).faults())

    yield trial


@contextmanager
def scarce_descriptors() -> Iterator[Trial]:
    def trial(dice: random.Random) -> list[str]:
        most = dice.choice([*range(8, 80, 4), 100, 200])
        prefix = ["prlimit", f"--nofile={most}:{dice.choice([most, 1024])}", "--"]
        # with fewer than about 20, Python itself fails to start, with its own message
        faults = RunningJob(_drawn(dice), prefix=prefix).faults()
        return _told(f"{prefix}", faults)

    yield trial


@contextmanager
def scarce_memory() -> Iterator[Trial]:
    """A memory limit for the whole job, as in a container: a process is killed, and the message names it."""
    parent = _memory_group()

    def trial(dice: random.Random) -> list[str]:
        group = Path(tempfile.mkdtemp(prefix="hostile-", dir=parent))
        try:
            limit = dice.choice([24, 40, 60, 80, 120, 160, 300]) << 20
            (group / "memory.limit_in_bytes").write_text(str(limit))
            join = f'echo $$ > {group}/cgroup.procs; exec "$@"'
            job = RunningJob(_drawn(dice), prefix=["sh", "-c", join, "sh"])
            return _told(f"{limit >> 20} MiB", job.faults())
        finally:
            group.rmdir()

    yield trial


def _memory_group() -> Path:
    """The group of this process in the hierarchy of memory; groups can be made below it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        place = Path("/sys/fs/cgroup/memory", path.lstrip("/"))
        if controllers == "memory" and os.access(place, os.W_OK) and (place / "memory.limit_in_bytes").exists():
            return place
    raise Unavailable("no hierarchy of cgroups for memory that may be written to")


@contextmanager
def homes() -> Iterator[Trial]:
    """No HOME, or one that does not exist, is not a folder or is not writable; unusual locales and folders."""

    def trial(dice: random.Random) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            odd = Path(folder, dice.choice(["plain", "with blanks", "quo'te", "ünïcödé", "$HOME", "a\nb"]))
            odd.mkdir()
            homes: list[dict[str, str]] = [{}, {"HOME": ""}, {"HOME": "/nowhere"}, {"HOME": "/dev/null"}]
            homes += [{"HOME": "/proc"}, {"HOME": str(odd)}, {"HOME": "relative"}]
            languages = ["", "C", "POSIX", "C.UTF-8", "de_DE.ISO-8859-1", "xx_YY", "tr_TR.UTF-8"]
            environ = dice.choice(homes) | {"LC_ALL": dice.choice(languages), "LANG": dice.choice(languages)}
            environ |= dice.choice(
                [{}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"}]
            )
            options = dice.choice([(), ("--log-dir", str(odd / "logs")), ("--executable-cache-path", str(odd / "c"))])
            job = RunningJob(_drawn(dice), options, environ=environ, cwd=str(odd), bare=True)
            return _told(f"{environ}, {options}, in {odd}", job.faults(must_succeed=True))

    yield trial


@contextmanager
def users() -> Iterator[Trial]:
    """A user other than root, who can write only to the temporary folders, or not even to those."""
    if os.geteuid() or not shutil.which("setpriv"):
        raise Unavailable("needs root, to become another user, and setpriv")
    cover("/root")  # which may contain the checkout and Python; its other content is irrelevant

    def trial(dice: random.Random) -> list[str]:
        number = dice.choice([_NOBODY, 12345])
        prefix = ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", "--"]
        prefix += dice.choice(
            [[], ["sh", "-c", 'umask 077; exec "$@"', "sh"], ["sh", "-c", 'umask 0; exec "$@"', "sh"]]
        )
        home = dice.choice([{}, {"HOME": "/root"}, {"HOME": "/nonexistent"}])
        job = RunningJob(_drawn(dice), prefix=prefix, environ=home, bare=True)
        return _told(f"{prefix}, {home}", job.faults(must_succeed=True))

    yield trial


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
