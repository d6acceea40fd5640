"""Slurm allocation: the allocation that this process runs in, as its environment describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from poprun_py.errors import UsageError
from poprun_py.options.host_list import expanded

_JOB = ("SLURM_JOB_ID", "SLURM_JOBID")
_HOSTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")


@dataclass(frozen=True)
class Allocation:
    """The hosts that Slurm has allocated to a job, and whether there is an srun on PATH."""

    job: str
    hosts: tuple[str, ...]
    has_srun: bool


def allocation(environ: Mapping[str, str]) -> Allocation | None:
    """Return the allocation of this process, if there is one; raise UsageError if its host list is malformed."""
    job, hosts = (next(filter(None, map(environ.get, names)), None) for names in (_JOB, _HOSTS))
    if not job or not hosts:
        return None
    try:
        return Allocation(job, expanded(hosts), _srun(environ) is not None)
    except ValueError as error:
        raise UsageError([f"SLURM_JOB_NODELIST={hosts}: {error}; name the hosts with --host"]) from None


def missing(environ: Mapping[str, str]) -> str:
    """The message about a missing variable of an allocation, with advice."""
    for names, advice in ((_JOB, "use salloc or sbatch"), (_HOSTS, "it names the hosts; see sbatch")):
        if not any(map(environ.get, names)):
            return f"{names[0]} is not set; {advice}"
    return ""


def find_srun(environ: Mapping[str, str]) -> str:
    """Return the srun on PATH; raise UsageError if there is none."""
    srun = _srun(environ)
    if srun is None:
        raise UsageError(
            ["--backend slurm: there is no srun on PATH; use --backend mpi, which needs ssh to the hosts"]
        )
    return srun


def _srun(environ: Mapping[str, str]) -> str | None:
    from shutil import which  # slow to import

    return which("srun", path=environ.get("PATH"))
