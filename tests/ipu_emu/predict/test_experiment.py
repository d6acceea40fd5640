"""Experiment: commands, rounds, t and c, predictions of more instances; the launcher itself runs once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.predict.calibration.rows import program_rows
from ipu_emu.predict.experiment import Experiment, Measurements, check_idle, launched, measured_seconds
from tests.helpers.mpi_jobs import ROOT
from tests.helpers.network_namespaces import needs_hosts

SCRIPT = [sys.executable, str(ROOT / "scripts/hosts")]
T, C = 0.010, 0.004


def experiment(**options: object) -> Experiment:
    return Experiment(("train.py",), (1, 2, 4), (1, 2, 4), batch=8, rounds=2, **options)  # type: ignore[arg-type]


class Machine:
    """A machine on which the second round is faster, and several instances are a little slower."""

    def __init__(self) -> None:
        self.commands: list[str] = []

    def __call__(self, command: list[str], timeout: float) -> str:
        self.commands.append(" ".join(command))
        instances = int(command[command.index("--num-instances") + 1])
        accumulation = int(command[command.index("--accumulation") + 1])
        noise = 1.5 if len(self.commands) <= 15 else 1.0
        seconds = (T * accumulation + C * (1 + 0.1 * (instances - 1))) * noise
        return f"[1,0]<stdout>:step_seconds 99\n[1,0]<stdout>:step_seconds {seconds:.9f}\n"


@pytest.fixture
def measurements() -> Measurements:
    return experiment().run(Machine())


def test_rounds_are_interleaved_and_the_least_time_counts() -> None:
    machine = Machine()
    measurements = experiment().run(machine)
    assert len(machine.commands) == 2 * (9 + 2 + 4)  # two and four separate runs of one instance at a time
    assert machine.commands[:15] == machine.commands[15:]
    assert len(set(machine.commands[:9])) == 9
    assert set(machine.commands[9:15]) == {machine.commands[2]}
    assert measurements.points[0].seconds == pytest.approx(T + C)


def test_t_and_c(measurements: Measurements) -> None:
    fit = measurements.fit(1)
    assert fit.micro_batch == pytest.approx(T)
    assert fit.constant == pytest.approx(C)
    assert fit.freedom == 1


def test_more_instances_are_predicted_from_one(measurements: Measurements) -> None:
    two = next(point for point in measurements.points if (point.instances, point.accumulation) == (2, 4))
    assert measurements.slowdowns == {2: 1.0, 4: 1.0}
    assert measurements.predicted(2, 4) == pytest.approx(two.seconds, rel=0.1)
    crowded = Measurements(measurements.experiment, measurements.points, True, {4: 2.0})
    assert crowded.predicted(4, 4) == pytest.approx(2 * 4 * T + C)


def test_curves_and_serial_fractions(measurements: Measurements) -> None:
    weak, strong = (measurements.line(strong=strong) for strong in (False, True))
    assert [(p.instances, p.accumulation) for p in weak] == [(1, 4), (2, 4), (4, 4)]
    assert [(p.instances, p.accumulation) for p in strong] == [(1, 4), (2, 2), (4, 1)]
    assert measurements.serial_fraction(strong[0], strong[0]) is None
    fractions = [measurements.serial_fraction(point, strong[0]) for point in strong[1:]]
    assert all(fraction is not None and 0.08 < fraction < 0.2 for fraction in fractions)
    assert measurements.constant_share(4) == pytest.approx(C / (4 * T + C))


def test_rows_can_be_read_again(measurements: Measurements) -> None:
    rows = program_rows(measurements.rows(), "rows.csv")
    assert [(row.instances, row.accumulation, row.batch) for row in rows][:2] == [(1, 1, 8), (1, 2, 8)]
    assert rows[0].seconds == pytest.approx(T + C)
    with pytest.raises(EmulatorError, match="line 2"):
        program_rows("model,instances\nprogram,1\n", "rows.csv")


def test_commands() -> None:
    command = experiment().command(2, 4)
    assert command[:7] == [sys.executable, "-m", "poprun_py", "--num-instances", "2", "--num-replicas", "2"]
    assert command[7:] == [sys.executable, "train.py", "--accumulation", "4"]
    own = Experiment(("./run", "--ga={accumulation}", "{replicas}"), (1,), (1, 2), launcher=("--host", "a,b"))
    assert own.command(2, 2)[7:] == ["--host", "a,b", "./run", "--ga=2", "2"]
    assert own.command(1, 2)[7:] == ["--host", "a", "./run", "--ga=2", "1"]  # no more hosts than instances


@pytest.mark.parametrize("written", [("--host", "a,b,c,d"), ("--host=a,b,c,d",), ("-H", "a,b,c,d")])
def test_simultaneous_runs_are_on_separate_hosts(written: tuple[str, ...]) -> None:
    machine = Machine()
    measurements = Experiment(("train.py",), (2, 4), (1, 2), rounds=1, launcher=("--tag-output", *written)).run(
        machine
    )
    separate = machine.commands[4:]
    assert ["a,b" in command for command in separate] == [True, False]
    assert ["c,d" in command for command in separate] == [False, True]
    assert set(measurements.slowdowns) == {4}
    few = Experiment(("train.py",), (2,), (1, 2), launcher=("--host", "a,b,c"))
    assert few.command(2, 1, 1)[7:9] == ["--host", "c,a"]  # hosts are reused
    assert few.command(2, 1, 1)[9:] == [sys.executable, "train.py", "--accumulation", "1"]


def test_ranges_of_hosts_are_refused() -> None:
    with pytest.raises(EmulatorError, match=r"--launcher n\[0-1\].*each host"):
        experiment(launcher=("--host", "n[0-1]"))


@needs_hosts
def test_on_two_hosts(tmp_path: Path) -> None:
    """One instance is on the first host, two are on both; simultaneous separate runs are on different hosts."""
    program, seen = tmp_path / "train.py", tmp_path / "seen"
    program.write_text(
        "import os, socket, sys\n"
        f"with open({str(seen)!r}, 'a') as file:\n"
        "    file.write(socket.gethostname() + ' ' + os.environ['POPDIST_NUM_TOTAL_REPLICAS'] + '\\n')\n"
        "print('step_seconds', 0.001 * int(sys.argv[2]) + 0.002)\n"
    )
    words = f"-m ipu_emu scale --run {program} --instances 1,2 --accumulations 1,3 --rounds 1 --force --format json"
    command = [*SCRIPT, "2", sys.executable, *words.split(), "--launcher", "--host h0,h1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert sorted(seen.read_text().splitlines()) == ["h0 1"] * 3 + ["h0 2"] * 2 + ["h1 1"] + ["h1 2"] * 2
    facts = json.loads(done.stdout)
    assert facts["micro_batch_seconds"] == pytest.approx(0.001)
    two = [point for point in facts["measurements"] if point["instances"] == 2]
    assert [point["predicted_step_seconds"] for point in two] == pytest.approx([0.003, 0.005])
    assert facts["slowdowns"] == {"2": 1.0}


@pytest.mark.parametrize(
    ("output", "seconds"),
    [
        ("step_seconds 0.5\nstep_seconds: 0.25", 0.25),
        ("throughput    48,311 images/s", 64 / 48_311),
        ("throughput 10\nstep_seconds=2e-3", 2e-3),
    ],
)
def test_printed_times_are_parsed(output: str, seconds: float) -> None:
    assert measured_seconds(output, 64, ["train"]) == pytest.approx(seconds)


def test_programs_that_print_no_time_are_refused() -> None:
    with pytest.raises(EmulatorError, match="train printed no time"):
        measured_seconds("done", 1, ["train"])


@pytest.mark.parametrize(
    "output", ["step_seconds 1e400", "step_seconds: -1", "step_seconds=0", "throughput -5", "throughput 1e400"]
)
def test_impossible_times_are_refused(output: str) -> None:
    with pytest.raises(EmulatorError, match=r"train printed .*, which is not possible"):
        measured_seconds(output, 64, ["train"])


def test_a_busy_machine_is_refused() -> None:
    assert check_idle(force=False, cores=2, load=0.5)
    with pytest.raises(EmulatorError, match=re.escape("the load is 0.50 per core")):
        check_idle(force=False, cores=2, load=1.0)
    assert not check_idle(force=True, cores=2, load=1.0)


def test_mistakes() -> None:
    for options in (
        {"program": (), "instances": (1,), "accumulations": (1, 2)},
        {"program": ("a",), "instances": (0,), "accumulations": (1, 2)},
        {"program": ("a",), "instances": (1,), "accumulations": (2, 2)},
    ):
        with pytest.raises(EmulatorError):
            Experiment(**options)  # type: ignore[arg-type]
    with pytest.raises(EmulatorError, match="ended with 3: oh"):
        launched([sys.executable, "-c", "import sys; print('oh', file=sys.stderr); sys.exit(3)"], 60)
    with pytest.raises(EmulatorError, match=r"ran longer than 0\.1 s"):
        launched([sys.executable, "-c", "import time; time.sleep(9)"], 0.1)
    with pytest.raises(EmulatorError, match="cannot be started"):
        launched(["/nonexistent/program"], 1)


def test_under_the_launcher(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import sys\nprint('step_seconds', 0.001 * int(sys.argv[2]) + 0.002)\n")
    measurements = Experiment((str(program),), (1,), (1, 3), rounds=1).run(launched)
    assert measurements.fit(1).micro_batch == pytest.approx(0.001)
