"""The programs in benchmarks/ name the extra that they need instead of ending in a traceback; peers may fail."""

import dataclasses
import importlib
import re
import runpy
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from tests.helpers.mpi_jobs import ROOT

FOLDER = ROOT / "benchmarks"
EXTRAS = {"torch": "bench", "matplotlib": "plots", "tensorflow": "tensorflow"}
NEEDED = {
    "checkpoint": "torch",
    "hostio": "torch",
    "models": "torch",
    "overlap": "torch",
    "tensorflow": "tensorflow",
    "torch_backend": "torch",
    "trace": "torch",
    "training": "torch",
    "plot": "matplotlib",
    "poptorch": "torch",
}
PROGRAMS = [file.stem for file in sorted(FOLDER.glob("*.py")) if "ArgumentParser" in file.read_text()]


class Absent:
    """Finds no package of the extras."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_missing_extra_is_named(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    for name in [name for name in sys.modules if name.partition(".")[0] in EXTRAS]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    monkeypatch.setattr(sys, "argv", [f"benchmarks/{program}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / f"{program}.py"), run_name="__main__")
    if (package := NEEDED.get(program)) is not None:
        said = f"{program}.py needs {package}, which is not installed; pip install -e '.[{EXTRAS[package]}]'"
        assert ended.value.code == said
    else:
        assert ended.value.code in (0, None)


def test_no_program_hides_a_package() -> None:
    """Python looks for packages first in the folder of the program, and would import a program of that name.

    A program that has the name of the package that it measures moves the folder behind those of the packages before
    it imports any; no other program imports that package.
    """
    for package in EXTRAS.keys() & {file.stem for file in FOLDER.glob("*.py")}:
        program = (FOLDER / f"{package}.py").read_text()
        assert 0 <= program.find("\nsys.path.sort(") < program.find("\nimport numpy"), package
        imports = re.compile(rf"^\s*(import|from) {package}\b", re.MULTILINE)
        users = [file.name for file in FOLDER.rglob("*.py") if imports.search(file.read_text())]
        assert set(users) == {f"{package}.py", f"{package}_networks.py"}


@pytest.fixture
def support(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a module of benchmarks/support."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    return lambda name: importlib.import_module(f"support.{name}")


def times_in_turns() -> tuple[dict[str, Callable[[], float]], list[str]]:
    """Four contenders, of which one peer fails at once and one in the second round; and the calls that were made."""
    calls: list[str] = []

    def contender(name: str, times: list[float], error: str) -> Callable[[], float]:
        def run() -> float:
            calls.append(name)
            if len(times) == 0:
                raise RuntimeError(error)
            return times.pop(0)

        return run

    contenders = {
        "ours": contender("ours", [2.0, 2.0, 4.0], ""),
        "absent": contender("absent", [], "no such library\nsecond line"),
        "slow": contender("slow", [6.0, 6.0, 6.0], ""),
        "short": contender("short", [3.0], "aborted"),
    }
    return contenders, calls


def test_a_peer_that_fails_is_named_and_the_others_are_measured(support: Callable[[str], ModuleType]) -> None:
    rounds = support("rounds")
    contenders, calls = times_in_turns()
    times, failed = rounds.measured_in_turns(contenders, ["ours"], 3)
    assert times == {"ours": [2.0, 2.0, 4.0], "slow": [6.0, 6.0, 6.0]}
    assert failed == {"absent": "RuntimeError: no such library", "short": "RuntimeError: aborted"}
    assert [calls.count(name) for name in contenders] == [3, 1, 3, 2]

    row = rounds.row_of_times("case", times, "ours", "absent", "slow", "short", failed=failed)
    assert (row.ours, row.peers, row.ratio, row.failed) == (2.0, {"slow": 6.0}, 3.0, failed)
    assert "; absent failed: RuntimeError: no such library" in str(row)
    (table,) = runpy.run_path(str(FOLDER / "tables.py"))["plain_table"]([dataclasses.asdict(row) | {"load": 1}])
    assert "| case | 2 ms | 6 ms | failed | failed | **3.00** | 1 |" in table.splitlines()

    alone = rounds.row_of_times("case", times, "ours", "absent", failed=failed)
    (table,) = runpy.run_path(str(FOLDER / "tables.py"))["plain_table"]([dataclasses.asdict(alone) | {"load": 1}])
    assert "| case | 2 ms | failed |  | 1 |" in table.splitlines()


def test_a_failure_of_ours_ends_the_benchmark(support: Callable[[str], ModuleType]) -> None:
    contenders, _ = times_in_turns()
    with pytest.raises(RuntimeError, match="no such library"):
        support("rounds").measured_in_turns(contenders, ["ours", "absent"], 3)


PRINTS = [sys.executable, "-c", "print('STEP_MS 1.5', 'STEP_MS 2.5', sep='\\n')"]
ABORTS = [
    sys.executable,
    "-c",
    "import os, sys; print('rank 1 aborts', '=====', sep='\\n', file=sys.stderr); os.abort()",
]


def two_processes(support: Callable[[str], ModuleType], ours: list[str], peer: list[str]) -> Any:
    pair = support("two_processes").TwoProcesses(["program"], port=1)
    pair.commands = dict(zip(pair.commands, (ours, peer), strict=True))
    return pair


def test_processes_of_the_peer_that_abort_are_named(support: Callable[[str], ModuleType]) -> None:
    row = two_processes(support, PRINTS, ABORTS).row("case", 2)
    assert (row.ours, row.peers) == (2.5, {})
    assert row.failed == {"torchrun + DDP + gloo": "RuntimeError: exit code -6: rank 1 aborts"}
    row = two_processes(support, PRINTS, [sys.executable, "-c", "import time; time.sleep(60)"]).row("x", 1, timeout=2)
    assert "timed out after 2 seconds" in row.failed["torchrun + DDP + gloo"]
    assert two_processes(support, PRINTS, PRINTS).row("case", 2).peers == {"torchrun + DDP + gloo": 2.5}


def test_processes_of_ours_that_abort_end_the_benchmark(support: Callable[[str], ModuleType]) -> None:
    with pytest.raises(SystemExit, match=r"failed:\nrank 1 aborts"):
        two_processes(support, ABORTS, PRINTS).row("case", 1)


@pytest.mark.torch
def test_the_benchmark_of_traces_fails_above_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    monkeypatch.setattr(sys, "argv", ["benchmarks/trace.py"])
    program = runpy.run_path(str(FOLDER / "trace.py"))

    def main_with(cost: float) -> object:
        costs = [program["Cost"](530.0, 1.0, 1.0, 0.4, 0.4, cost, 0.4, 2.5, 0.2)]
        main = program["main"]
        monkeypatch.setitem(main.__globals__, "run", lambda name, seconds: costs[0])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code

    assert set(program["BOUNDS"]) <= {row.case for row in program["table"]({"ours": [program["Cost"](*[0.0] * 9)]})}
    assert main_with(0.45) == 0
    assert main_with(0.55) == 1
