"""The programs in benchmarks/ say which extra they need instead of ending in a traceback."""

import re
import runpy
import sys
from importlib.machinery import ModuleSpec

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
