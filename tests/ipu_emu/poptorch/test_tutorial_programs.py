"""Programs like those of PopTorch's tutorials run unchanged; each checks its own results."""

import runpy
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

from ipu_emu import compat  # noqa: E402
from tests.helpers.mpi_jobs import PROGRAMS  # noqa: E402
from tests.helpers.warm_processes import PYTORCH_FACES, warm_python  # noqa: E402

pytestmark = pytest.mark.torch

#: Programs that start processes run under the command, because the processes find the names in their environment.
ALONE = {"loaders", "mnist"}
NAMES = sorted(path.stem for path in (PROGRAMS / "poptorch").glob("*.py"))


@pytest.fixture
def redirected(monkeypatch):
    """Redirect imports of this process as ``python -m ipu_emu.compat`` does, until the test ends."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    before = set(sys.modules)
    compat.install()
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in compat.ALIASES:
            del sys.modules[name]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ALONE])
@pytest.mark.filterwarnings("ignore")
def test_a_program_runs_unchanged(name, redirected):
    runpy.run_path(str(PROGRAMS / "poptorch" / f"{name}.py"), run_name="__main__")


@pytest.mark.parametrize("name", sorted(ALONE))
def test_a_program_that_starts_processes_runs_unchanged(name):
    command = [*warm_python(*PYTORCH_FACES), "-m", "ipu_emu.compat", str(PROGRAMS / "poptorch" / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
