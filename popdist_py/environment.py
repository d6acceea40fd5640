"""Environment: the POPDIST_* variables, in which the launcher passes each instance the replicas that it owns.

The launcher, which writes them, and the instance, which reads them, use one table. There is no variable for the
number of instances or the instance index: if all instances have as many replicas, they follow from the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from popdist_py.errors import PopdistEnvironmentError
from popdist_py.layout import MOST, Layout

#: Field of Environment -> name of the variable, in the order in which PopRun sets them.
NAMES: dict[str, str] = {
    "num_total_replicas": "POPDIST_NUM_TOTAL_REPLICAS",
    "num_ipus_per_replica": "POPDIST_NUM_IPUS_PER_REPLICA",
    "num_local_replicas": "POPDIST_NUM_LOCAL_REPLICAS",
    "uniform_replicas_per_instance": "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE",
    "replica_index_offset": "POPDIST_REPLICA_INDEX_OFFSET",
    "local_instance_index": "POPDIST_LOCAL_INSTANCE_INDEX",
}

#: Folder of compiled executables; set if the launcher was given, or created, one.
EXECUTABLE_CACHE_PATH = "POPDIST_EXECUTABLE_CACHE_PATH"

#: Number of restarts of the job so far; 0 in the first run.
RESTART_COUNT = "POPDIST_RESTART_COUNT"

#: A number that identifies the job: the same in all its instances, different for other jobs of the user.
JOB = "POPDIST_JOB"

#: Set to 1 if the program must not attach to any IPU.
OFFLINE_MODE = "POPDIST_OFFLINE_MODE"

#: The socket that report() writes to, as descriptor:inode; set only if the launcher shows progress.
REPORT_SOCKET = "POPDIST_REPORT_SOCKET"

#: How much the launcher logs, 1 or 2; instances then print the digest of their weights. Unset or 0: nothing.
VERBOSITY = "POPDIST_VERBOSITY"

#: Folder in which each process records what it does and when; nothing is recorded if it is unset or empty.
TRACE_FOLDER = "IPU_EMU_TRACE"

#: The most MiB that a process records.
TRACE_LIMIT = "IPU_EMU_TRACE_LIMIT"

#: The same for programs of PopVision's users: a JSON object with "enable" and "directory".
PVTI_OPTIONS = "PVTI_OPTIONS"

#: Options of the engine, a JSON object; "autoReport.all" and "autoReport.directory" ask for a trace too.
ENGINE_OPTIONS = "POPLAR_ENGINE_OPTIONS"

_MINIMUM = {"num_total_replicas": 1, "num_ipus_per_replica": 1, "num_local_replicas": 1}


def is_set(environ: Mapping[str, str]) -> bool:
    """Whether a launcher started this process (whether ``POPDIST_NUM_TOTAL_REPLICAS`` is set)."""
    return NAMES["num_total_replicas"] in environ


def mpirun_rank(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Rank and size, if a plain mpirun of MPICH or Open MPI started this process among several, not poprun-py."""
    pairs = (("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
    for rank, size in () if is_set(environ) else pairs:
        if environ.get(rank, "").isdigit() and environ.get(size, "").isdigit():
            return int(environ[rank]), int(environ[size])
    return None


@dataclass(frozen=True)
class Environment:
    """The identity of one instance; the defaults are those of a program without a launcher."""

    num_total_replicas: int = 1
    num_ipus_per_replica: int = 1
    num_local_replicas: int = 1
    uniform_replicas_per_instance: int = 1
    replica_index_offset: int = 0
    local_instance_index: int = 0

    @classmethod
    def of_instance(
        cls, layout: Layout, instance: int, *, ipus_per_replica: int = 1, local_instance_index: int = 0
    ) -> Environment:
        """Return the environment of ``instance`` in ``layout``."""
        return cls(
            num_total_replicas=layout.num_replicas,
            num_ipus_per_replica=ipus_per_replica,
            num_local_replicas=layout.local_replicas[instance],
            uniform_replicas_per_instance=int(layout.is_uniform),
            replica_index_offset=layout.offset(instance),
            local_instance_index=local_instance_index,
        )

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Environment:
        """Read the variables; raise PopdistEnvironmentError naming all that are malformed or contradictory."""
        values: dict[str, int] = {}
        faults: list[str] = []
        for field in fields(cls):
            text = environ.get(NAMES[field.name])
            if text is None:
                continue
            try:
                values[field.name] = int(text)
            except ValueError:
                faults.append(f"{NAMES[field.name]}={text!r} is not a whole number")
                continue
            if values[field.name] < _MINIMUM.get(field.name, 0):
                faults.append(f"{NAMES[field.name]}={text} is below {_MINIMUM.get(field.name, 0)}")
            if values[field.name] > MOST:
                faults.append(f"{NAMES[field.name]}={text} is above {MOST}")
        result = cls(**values)
        faults = faults or result._contradictions()
        if faults:
            raise PopdistEnvironmentError(
                "; ".join(faults) + "; start the program with poprun-py, or unset the POPDIST_* variables"
            )
        return result

    def to_environ(self) -> dict[str, str]:
        """Return the variables and their values, in the order of the table."""
        return {NAMES[field.name]: str(getattr(self, field.name)) for field in fields(self)}

    @property
    def num_instances(self) -> int:
        """Number of instances; raise PopdistEnvironmentError if instances differ in their number of replicas."""
        self._check_uniform("number of instances")
        return self.num_total_replicas // self.num_local_replicas

    @property
    def instance_index(self) -> int:
        """Index of this instance; raise PopdistEnvironmentError if instances differ in their number of replicas."""
        self._check_uniform("instance index")
        return self.replica_index_offset // self.num_local_replicas

    def _contradictions(self) -> list[str]:
        """Messages about values that contradict each other."""

        def say(field: str) -> str:
            return f"{NAMES[field]}={getattr(self, field)}"

        local, faults = say("num_local_replicas"), []
        if self.replica_index_offset + self.num_local_replicas > self.num_total_replicas:
            faults.append(f"{say('replica_index_offset')} plus {local} is more than {say('num_total_replicas')}")
        for field in ("num_total_replicas", "replica_index_offset") if self.uniform_replicas_per_instance else ():
            if getattr(self, field) % self.num_local_replicas:
                faults.append(f"{say(field)} is not a multiple of {local}")
        return faults

    def _check_uniform(self, what: str) -> None:
        if not self.uniform_replicas_per_instance:
            raise PopdistEnvironmentError(
                f"the {what} is unknown with {NAMES['uniform_replicas_per_instance']}=0: it follows from the "
                "environment only if every instance has the same number of replicas"
            )
