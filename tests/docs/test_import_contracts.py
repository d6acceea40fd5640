"""Import contracts: an import of a higher layer, or of a private part, breaks the contract that forbids it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs._ext.package_maps import PACKAGES, ROOT, contracts

#: (file, import that is added to it, contract that must break)
BREAKS = {
    "selectors in a plan": (
        "poprun_py/plan/launch_plan.py",
        "import selectors",
        "Planning in poprun_py does not load the event loop",
    ),
    "asyncio in a plan": (
        "poprun_py/plan/launch_plan.py",
        "import asyncio",
        "Planning in poprun_py does not load the event loop",
    ),
    "upwards in gcl.core": ("gcl/core/operators.py", "import gcl.core.layout", "Layers of gcl.core"),
    "upwards in gcl.kernels": ("gcl/kernels/jit.py", "import gcl.kernels.element_loops", "Layers of gcl.kernels"),
    "a method that knows another": (
        "gcl/scheduling/methods/local.py",
        "import gcl.scheduling.methods.broadcast",
        "Layers of gcl.scheduling.methods: a method knows no other",
    ),
    "upwards in options": (
        "poprun_py/options/option_table.py",
        "import poprun_py.options.validation",
        "Layers of poprun_py.options",
    ),
    "upwards in job": ("poprun_py/job/job_state.py", "import poprun_py.job.event_loop", "Layers of poprun_py.job"),
    "upwards in poprun_py.site": (
        "poprun_py/site/machine.py",
        "import poprun_py.site.cluster",
        "Layers of poprun_py.site",
    ),
    "upwards in passes": (
        "ipu_emu/compiler/rewriting/op_writer.py",
        "import ipu_emu.compiler.rewriting.anchors",
        "Layers of ipu_emu.compiler.rewriting",
    ),
    "a front end in models": (
        "ipu_emu/models/network.py",
        "import ipu_emu.popart.builder.builder",
        "Models are built of ops, without a front end or the compiler",
    ),
    "the engine in feeds": (
        "ipu_emu/hostio/feeds/array_feed.py",
        "import ipu_emu.engine.engine",
        "Step data are prepared without knowing what runs the step",
    ),
    "a front end in commands": (
        "ipu_emu/cli/arguments/compile_model.py",
        "import ipu_emu.poptorch.options.options",
        "The commands compile by the compiler's options, and need no front end",
    ),
    "a module that no layer names": ("gcl/core/unnamed.py", "", "Layers of gcl.core"),
    "gcl's inner modules in the emulator": (
        "ipu_emu/graph/op.py",
        "import gcl.core.groups",
        "The emulator uses gcl's public names, gcl.kernels and gcl.drawing only",
    ),
}


def report_of(folder: Path) -> dict[str, str]:
    """The report of lint-imports on each broken contract of the packages in ``folder``, as one line."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, "--no-logo", "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Contracts: " in done.stdout, done.stdout + done.stderr
    names = set(re.findall(r"^(.+) BROKEN(?: \(\d+ ignored imports?\))?$", done.stdout, flags=re.MULTILINE))
    _, _, details = done.stdout.partition("\nBroken contracts\n")
    parts = re.split(r"^(.+)\n-+\n", details, flags=re.MULTILINE)
    reports = {name: " ".join(text.split()) for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    assert names == reports.keys() - {""}, done.stdout
    return reports


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contracts")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def report(copied: Path) -> dict[str, str]:
    """The report on one copy to which all imports were added."""
    assert report_of(copied) == {}
    for file, line, _ in BREAKS.values():
        with (copied / file).open("a") as stream:
            stream.write(f"\n{line}\n")
    return report_of(copied)


@pytest.mark.parametrize(("file", "line", "contract"), BREAKS.values(), ids=BREAKS)
def test_a_forbidden_import_breaks_its_contract(report: dict[str, str], file: str, line: str, contract: str) -> None:
    module = file.removesuffix(".py").replace("/", ".")
    text = f"- {module} -> {line.removeprefix('import ')} (l." if line else f"not listed as layers: - {module} "
    assert text in report[contract]


def test_every_module_of_gcl_but_kernels_and_drawing_is_closed_to_the_emulator() -> None:
    contract = next(c for c in contracts() if str(c["name"]).startswith("The emulator uses gcl's public names"))
    modules = {
        f"gcl.{path.stem}"
        for path in (ROOT / "gcl").iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem != "__init__"
    }
    assert set(contract["forbidden_modules"]) == modules - {"gcl.kernels", "gcl.drawing"}  # type: ignore[call-overload]


def test_private_modules_of_numba_are_not_imported() -> None:
    """Ruff rejects ``numba.core``, which import-linter cannot distinguish from numba."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--stdin-filename",
            "gcl/kernels/copies.py",
            "-",
        ],
        cwd=ROOT,
        input="from numba.core import types\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "`numba.core` is banned" in done.stdout, done.stdout + done.stderr
