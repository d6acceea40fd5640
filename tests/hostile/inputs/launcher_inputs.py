"""Launcher inputs: damaged command lines, configuration files, host files and environments of poprun-py."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from poprun_py.options.option_table import OPTIONS
from tests.hostile.inputs.command_output import environment, faults_of_launcher
from tests.hostile.inputs.mutations import ODD_WORDS, damaged, deep_json, deep_toml, odd_value, torn_word
from tests.hostile.kind import Trial
from tests.poprun_py.cli.test_malformed_command_lines import GOOD

__all__ = ["command_lines", "config_files", "environments", "host_files", "partition_files"]

_CONFIG = b"""\
# Options of poprun-py
num-instances = 2
num-replicas = 4
print-topology = true
host = "localhost"
mpi-global-args = ["--tag-output", "--mca", "a", "b"]
grace = 3.5
"""

_HOST_FILE = b"# two hosts\nh0 slots=2\nh1:4\nn[0-2,4]\nr[1-2]n[08-10] slots=1 max-slots=2\n"

_PARTITIONS = json.dumps(
    {
        "partitions": [
            {
                "name": "p",
                "server": "localhost:8090",
                "ipus": 4,
                "allocation": None,
                "removable": True,
                "resets": 0,
                "jobs": [{"pid": 1, "started": 5, "host": "h"}],
            }
        ]
    }
).encode()

#: Variables that the launcher reads, with a good value.
_VARIABLES = {
    "POPRUN_LOG_LEVEL": "INFO",
    "POPRUN_PY_MPI": "mpich",
    "POPRUN_PY_SSH": "ssh",
    "IPU_EMU_SYSTEM": "pod16",
    "IPUOF_VIPU_API_HOST": "localhost",
    "IPUOF_VIPU_API_PORT": "8090",
    "IPUOF_VIPU_API_TIMEOUT": "12",
    "IPUOF_VIPU_API_PARTITION_ID": "p",
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-3,7]",
    "SLURM_NODELIST": "n[1-3,7]",
    "SLURM_NNODES": "4",
    "SLURM_NTASKS": "8",
    "SLURM_TASKS_PER_NODE": "2(x4)",
    "SLURM_JOB_CPUS_PER_NODE": "8(x4)",
    "SLURM_MPI_TYPE": "pmix",
    "POPDIST_NUM_TOTAL_REPLICAS": "4",
    "OMP_NUM_THREADS": "2",
    "COLUMNS": "80",
    "TERM": "dumb",
    "XDG_STATE_HOME": "/tmp/state",
    "XDG_CACHE_HOME": "/tmp/cache",
    "TMPDIR": "/tmp",
    "HOME": "/tmp",
    "PATH": "/usr/bin:/bin",
    "LANG": "C",
}


@contextmanager
def command_lines() -> Iterator[Trial]:
    yield _command_line


def _command_line(dice: random.Random) -> list[str]:
    line = list(dice.choice(GOOD))
    for _ in range(dice.choice([1, 1, 2, 4])):
        at = dice.randrange(len(line) + 1)
        if dice.random() < 0.3:
            line[at:at] = [f"--{dice.choice(OPTIONS).name}", *dice.choices(ODD_WORDS, k=dice.randrange(2))]
        else:
            line[at : at + 1] = torn_word(line[at] if at < len(line) else "--", dice)
    with environment({}):
        return faults_of_launcher([*line, *dice.choice([["--", "true"], ["true"], []])])


@contextmanager
def config_files() -> Iterator[Trial]:
    with _files("config.toml") as file:
        yield lambda dice: _with_file(file, _config(dice), ["--import-config", str(file), "true"])


def _config(dice: random.Random) -> bytes:
    kind = dice.randrange(4)
    if kind == 0:
        return deep_toml(dice.choice([10, 500, 5_000, 100_000]), dice).encode()
    if kind == 1:  # any value for any key
        name = dice.choice([dice.choice(OPTIONS).name, *ODD_WORDS[:8]])
        return f"{json.dumps(name)} = {json.dumps(odd_value(dice))}\n".encode(errors="surrogateescape")
    return damaged(_CONFIG, dice)


@contextmanager
def host_files() -> Iterator[Trial]:
    with _files("hosts") as file:
        yield lambda dice: _with_file(file, _host_list(dice), ["--hostfile", str(file), "true"])


def _host_list(dice: random.Random) -> bytes:
    if dice.random() < 0.5:
        return damaged(_HOST_FILE, dice)
    words = [dice.choice([*ODD_WORDS, "h0", "n[0-3]", "slots=2"]) for _ in range(dice.randrange(6))]
    return dice.choice([" ", "\n", ","]).join(words).encode(errors="surrogateescape")


@contextmanager
def environments() -> Iterator[Trial]:
    yield _environment


def _environment(dice: random.Random) -> list[str]:
    names = dice.sample(sorted(_VARIABLES), dice.randrange(1, 6))
    values = {}
    for name in names:
        words = torn_word(_VARIABLES[name], dice) if dice.random() < 0.5 else [dice.choice(ODD_WORDS)]
        values[name] = " ".join(words).replace("\0", "")  # which no variable can hold
    with environment(values):
        faults = faults_of_launcher([*dice.choice([*GOOD[-5:], []]), "--", "true"])
    return [repr(values), *faults] if faults else []


@contextmanager
def partition_files() -> Iterator[Trial]:
    """The file of partitions that a job finds."""
    with _files("poprun-py/partitions.json") as file:

        def trial(dice: random.Random) -> list[str]:
            kind = dice.randrange(3)
            if kind == 0:
                data = deep_json(dice.choice([10, 500, 5_000, 100_000]), dice).encode()
            elif kind == 1:
                data = json.dumps(odd_value(dice)).encode()
            else:
                data = damaged(file_content, dice)
            return _with_file(file, data, ["--vipu-partition", "p", "true"], {"XDG_STATE_HOME": str(file.parents[1])})

        file_content = _PARTITIONS
        yield trial


@contextmanager
def _files(name: str) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.parent.mkdir(exist_ok=True)
        yield path


def _with_file(file: Path, data: bytes, line: list[str], variables: dict[str, str] | None = None) -> list[str]:
    file.write_bytes(data)
    with environment(variables or {}):
        faults = faults_of_launcher(line)
    return [f"the file holds {data[:2000]!r}", *faults] if faults else []
