"""Jobs: starts a small program as the instances of one job with a real mpirun, for tests.

Every instance gets its POPDIST_* variables from popdist_py's own table, and its output is kept separately.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import pytest

from popdist_py.environment import Environment
from popdist_py.layout import Layout
from poprun_py.linux.mpi_files import MpiFiles
from tests.helpers.warm_processes import WITH_GCL, warm_python

__all__ = ["MPICH", "OPENMPI", "PROGRAMS", "ROOT", "Ended", "Mpi", "every_mpi", "run_alone", "run_job"]

ROOT = Path(__file__).parents[2]
#: The folder of the programs that tests start as processes.
PROGRAMS = ROOT / "tests" / "programs"


@dataclass(frozen=True)
class Mpi:
    """One MPI: its launcher, and the environment of its processes."""

    mpirun: Path
    flags: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


#: The package index's MPICH, with the option to keep survivors of a death alive, so that they can report errors.
MPICH = Mpi(Path(sys.executable).parent / "mpirun", ("-disable-auto-cleanup",))

_OPENMPI = ROOT / ".venv-openmpi"
OPENMPI = Mpi(
    _OPENMPI / "bin" / "mpirun",
    ("--oversubscribe", "--bind-to", "none"),
    {
        "MPI4PY_LIBMPI": str(_OPENMPI / "lib" / "libmpi.so.40"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl": "^ofi",
        "OMPI_MCA_mtl": "^ofi",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    },
)

_NEEDS_OPENMPI = (
    pytest.mark.openmpi,
    pytest.mark.skipif(not OPENMPI.mpirun.exists(), reason="there is no .venv-openmpi here"),
)

#: Decorator: the test's ``mpi`` is each of them in turn.
every_mpi = pytest.mark.parametrize(
    "mpi", [pytest.param(MPICH, id="mpich"), pytest.param(OPENMPI, id="openmpi", marks=_NEEDS_OPENMPI)]
)


#: The shell command that runs instance i, with separate files for its output, its pid and its exit code. The shell
#: stays the parent, because MPICH ends all if a process that it started is killed by a signal; it reports other
#: deaths by SIGUSR1.
_SHELL = """
trap "" USR1
"$@" > out.{i} 2> err.{i} & echo $! > pid.{i}
wait $!; code=$?
echo $code > code.{i}
exit $code
"""


@dataclass(frozen=True)
class Ended:
    """A job that has ended: exit codes of launcher and instances (None: was still running), and their output."""

    code: int
    codes: list[int | None]
    out: list[str]
    err: list[str]

    def succeeded(self) -> Ended:
        """Return self; fail the test with the output of all instances if the job failed."""
        assert self.code == 0, "\n".join([f"exit code {self.code}", *self.out, *self.err])
        return self


def run_job(
    program: Path | str,
    folder: Path,
    *arguments: object,
    counts: Sequence[int] = (1, 1),
    mpi: Mpi = MPICH,
    environ: Mapping[str, str] | None = None,
    until: int | None = None,
    timeout: float = 240.0,
    modules: Sequence[str] = WITH_GCL,
) -> Ended:
    """Run ``program`` (a file, or its source) with ``counts[i]`` local replicas on instance i; fail if it hangs.

    It is forked from a process that has imported ``modules``.
    ``until`` this instance has ended, if the others would wait for it; the launcher may end them then.
    """
    script, files = _script(program, folder), MpiFiles(lambda: _instances(folder))
    command = [str(mpi.mpirun), *mpi.flags]
    for instance in range(len(counts)):
        command += [":"] * (instance > 0) + [
            "-n",
            "1",
            *_instance(counts, instance, folder),
            *warm_python(*modules),
        ]
        command += [str(script), *map(str, arguments)]
    with open(folder / "launcher", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=_environ(mpi.environ, environ))
        try:
            code = _wait(process, None if until is None else folder / f"code.{until}", timeout)
        except subprocess.TimeoutExpired:
            _signal_instances(folder, signal.SIGABRT)  # faulthandler prints their tracebacks
            process.terminate()
            raise AssertionError(f"not over after {timeout:g} s\n{_said(folder)}") from None
        finally:
            left = files.new_files()  # what MPI leaves in /dev/shm when instances are killed
            while _signal_instances(folder, signal.SIGKILL):
                time.sleep(0.02)
            left += files.abandoned()  # also of those that no process holds
            files.close()
            for path in left:
                Path(path).unlink(missing_ok=True)
    out, err, codes = ([_read(folder / f"{file}.{i}") for i in range(len(counts))] for file in ("out", "err", "code"))
    return Ended(code, [int(text) if text else None for text in codes], out, [*err, _read(folder / "launcher")])


def _wait(process: subprocess.Popen[bytes], file: Path | None, timeout: float) -> int:
    """The exit code of the launcher, which gets SIGTERM once ``file`` exists."""
    deadline = time.monotonic() + timeout
    while file is not None and process.poll() is None and not _read(file):
        time.sleep(0.02)
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired("", timeout)
    if file is not None:
        process.terminate()
    return process.wait(timeout)


def run_alone(
    program: Path | str, folder: Path, *, environ: Mapping[str, str] | None = None, timeout: float = 240.0
) -> subprocess.CompletedProcess[str]:
    """Run ``program`` (a file, or its source) as one process that no launcher started."""
    command = [sys.executable, str(_script(program, folder))]
    return subprocess.run(
        command, capture_output=True, text=True, env=_environ({}, environ), timeout=timeout, check=False
    )


def _script(program: Path | str, folder: Path) -> Path:
    """The file of a program; source code is written to ``folder``."""
    if isinstance(program, Path):
        return program
    script = folder / "program.py"
    script.write_text(dedent(program))
    return script


def _instance(counts: Sequence[int], instance: int, folder: Path) -> list[str]:
    """The command before the program: its variables, and a shell in its folder."""
    variables = Environment.of_instance(Layout.of(counts), instance, local_instance_index=instance).to_environ()
    return [
        "env",
        f"--chdir={folder}",
        *(f"{name}={value}" for name, value in variables.items()),
        "WARM_PIDS=1",
        *("sh", "-c", _SHELL.format(i=instance), "sh"),
    ]


def _environ(*layers: Mapping[str, str] | None) -> dict[str, str]:
    foreign = ("POPDIST_", "MPI4PY_", "GCL_", "PMI_", "OMPI_")
    mine = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    mine |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    for layer in layers:
        mine |= layer or {}
    return mine


def _instances(folder: Path) -> list[int]:
    """The pids of all instances that have started, and of what was forked for them."""
    return [int(file.read_text() or 0) for file in folder.glob("pid.*")]


def _signal_instances(folder: Path, number: int) -> bool:
    """Signal every remaining instance, whatever the launcher did; return whether there was one."""
    any_left = False
    for pid in _instances(folder):
        with suppress(OSError):
            if os.path.samefile(f"/proc/{pid}/cwd", folder):  # a zombie has none
                os.kill(pid, number)
                any_left = True
    return any_left


def _said(folder: Path) -> str:
    """The output of launcher and instances, once the instances that were told to abort have ended."""
    time.sleep(1)
    files = [folder / "launcher", *sorted(folder.glob("out.*")), *sorted(folder.glob("err.*"))]
    return "\n".join(f"--- {file.name}\n{_read(file)}" for file in files)


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
