"""Validation: the rules that options must meet together, and the values of PopRun's options."""

from __future__ import annotations

import subprocess
import sys

import pytest

from poprun_py.errors import UsageError
from poprun_py.options.option_table import OPTIONS, LaunchOptions
from poprun_py.options.parser import parse
from tests.helpers.mpi_jobs import PROGRAMS


def mistakes(line: str, **environ: str) -> tuple[str, ...]:
    with pytest.raises(UsageError) as caught:
        parse(line.split(), environ)
    return caught.value.lines


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--num-ilds 3 --num-replicas 4 x", "4 is not divisible by 3; use 1, 2 or 4 domains"),
        ("--num-ilds 7 x", "1 is not divisible by 7; use 1 domain"),
        ("--num-ilds 1 --num-replicas 65 x", "1 IPU-Link domain holds 64 (64 each); use --num-ilds 5 or"),
        ("--num-ilds 2 --num-replicas 64 --ipus-per-replica 4 x", "need 256 IPUs, but 2 IPU-Link domains hold 128"),
        ("--num-replicas 65537 x", "65537 replicas are not possible; use 1 to 65536"),
        (
            "--num-replicas 65536 --ipus-per-replica 2 x",
            "but the largest system has 65536; use at most 32768 replicas",
        ),
        ("--ipus-per-replica 99999999 x", "use at most 65536 IPUs per replica"),
        (
            "--process-placement spreadcore --numa-aware yes x",
            "both set the placement of instances; give one of them",
        ),
        ("--host a --hosts-file b x", "--host a --hostfile b: both name the hosts"),
        ("--overwrite-config yes x", "there is no file to overwrite; add --export-config FILE"),
        (
            "--instance-mpi-local-args 2:-x --num-instances 2 x",
            "--instance-mpi-local-args 2: there is no such instance",
        ),
        ("--backend inprocess --num-instances 2 x", "this process can only be one instance"),
        ("--vipu-cluster a --vipu-allocation b x", "--vipu-allocation is given twice, as a and b"),
        ("--backend slrum x", "write --backend=auto|mpi|slurm|inprocess; did you mean 'slurm'?"),
        ("--backend mpirun x", "auto, mpi, slurm or inprocess is expected, found 'mpirun'"),
        ("--vipu-server-port 65536 x", "a port is a number from 1 to 65535"),
        ("--mpi-local-args=-x'A x", "a quotation mark is not closed"),
    ],
)
def test_a_violation_is_one_clear_line(line, said):
    lines = mistakes(line)
    assert len(lines) == 1
    assert said in lines[0]


@pytest.mark.parametrize(("system", "fits"), [("pod4", 4), ("POD16", 16), ("pod-64", 64), ("256", 256), ("", 65536)])
def test_the_system_limits_the_job(system, fits):
    line = f"--num-replicas {fits // 4} --ipus-per-replica 4 x"
    assert parse(line.split(), {"IPU_EMU_SYSTEM": system}).ipus == fits
    line = f"--num-replicas {fits // 4 + 1} --ipus-per-replica 4 x"
    assert f"has {fits}" in mistakes(line, IPU_EMU_SYSTEM=system)[0]


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("--mpi-global-args --tag-output x", "mpi_global_args", ("--tag-output",)),
        ("--mpi-global-args=-a --mpi-global-args -b x", "mpi_global_args", ("-a", "-b")),
        ("--num-instances 2 --instance-mpi-local-args 0:-x --instance-mpi-local-args=1:-y x",
         "instance_mpi_local_args", ((0, ("-x",)), (1, ("-y",)))),
        ("-Hh0,h1 x", "host", "h0,h1"),
        ("-H=h0 x", "host", "h0"),
        ("-vH h0 x", "host", "h0"),
        ("--hosts-file f x", "host_file", "f"),
        ("--host-file=f x", "host_file", "f"),
        ("--host-s eth0 x", "host_subnet", "eth0"),
        ("--vipu-clu c x", "vipu_allocation", "c"),
        ("--numa-aware 1 x", "numa_aware", True),
        ("--progress OFF x", "progress", "off"),
        ("A=1 B= x", "assignments", (("A", "1"), ("B", ""))),
        ("A=1 -v ./x=y", "program", ("./x=y",)),
    ],
)  # fmt: skip
def test_values_are_read(line, field, value):
    assert getattr(parse(line.split()), field) == value


def test_blanks_and_empty_words_before_the_program_do_not_count():
    assert parse(["", "-v", " --num-replicas=4", "  ", "x", ""]).program == ("x", "")


def test_exact_names_win_over_longer_ones():
    assert parse(["--vipu-partition", "p", "x"]).vipu_partition_attempts == 1
    assert "--vipu-partition, --vipu-partition-attempts" in mistakes("--vipu-part p x")[0]


def test_an_unknown_option_takes_its_value_along():
    assert len(mistakes("--num-instancs 2 --num-replicas many x")) == 2


@pytest.mark.parametrize(("word", "verbosity"), [("TRACE", 2), ("debug", 2), ("INFO", 1), ("WARN", 0)])
def test_the_log_level_of_poprun_counts(word, verbosity):
    assert parse(["x"], {"POPRUN_LOG_LEVEL": word}).verbosity == verbosity
    assert parse(["-v", "x"], {"POPRUN_LOG_LEVEL": word}).verbosity == 1


def test_a_log_level_that_there_is_not_is_refused():
    with pytest.raises(UsageError, match="POPRUN_LOG_LEVEL=loud: there is no such level; use INFO, DEBUG, TRACE"):
        parse(["x"], {"POPRUN_LOG_LEVEL": "loud"})


def test_every_row_has_a_field_and_every_beginning_of_a_name_finds_it():
    fields = set(LaunchOptions.__dataclass_fields__)
    spellings = {name: option for option in OPTIONS for name in option.spellings}
    assert {option.target for option in OPTIONS} <= fields
    for name, option in spellings.items():
        for length in range(4, len(name)):
            fitting = {id(other) for spelled, other in spellings.items() if spelled.startswith(name[:length])}
            if len(fitting) == 1 and not option.read and not option.adds:
                assert getattr(parse([f"--{name[:length]}", "x"]), option.target) is True


@pytest.mark.parametrize("argument", ["--version", "--dry-run"])
def test_the_launcher_imports_nothing_that_is_slow(argument, tmp_path):
    command = [sys.executable, str(PROGRAMS / "poprun_py/slow_imports.py"), argument, "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "slow:"
