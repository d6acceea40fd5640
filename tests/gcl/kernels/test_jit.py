"""Kernel cache: kernels are kept on disk between runs, until one of their source files changes."""

import os
import pwd
import shutil
import sys
import warnings
from importlib import import_module
from pathlib import Path

import numba
import numpy as np
import pytest

import gcl.kernels.jit as jit_module
from gcl.kernels.file_lock import held
from gcl.kernels.jit import bound, jit, sources
from tests.helpers.mpi_jobs import PROGRAMS, ROOT, run_alone

#: Three files of a package, each calling the next; the program prints the result, and whether the kernel was cached.
FILES = {
    name: (PROGRAMS / "gcl/kernels/kernels_on_disk" / name).read_text()
    for name in ("inner.py", "middle.py", "outer.py")
}
#: Only a process that compiles waits for numba to load its rules for typing Python.
PROGRAM = PROGRAMS / "gcl/kernels/cached_kernel.py"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, without compiled kernels, that contains these files."""
    for name in ("gcl", "popdist_py"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.nb?", "*.tmp.*", "*.pyc.*"))
    for name, text in FILES.items():
        (tmp_path / "gcl" / name).write_text(text.replace("kernels_on_disk", "gcl"))
    return tmp_path / "gcl"


def test_a_kernel_is_compiled_once_and_again_when_a_file_changes_from_which_it_calls(package: Path) -> None:
    def run() -> str:
        return run_alone(PROGRAM, package.parent, environ={"PYTHONPATH": str(package.parent)}).stdout

    assert run() == "2 compiled\n"
    (package / "cost" / "program_cost.py").touch()  # neither calls them nor is called by them
    assert run() == "2 from the disk\n"
    (package / "inner.py").write_text(FILES["inner.py"].replace("x + 1", "x + 100"))
    assert run() == "101 compiled\n"
    assert run() == "101 from the disk\n"


def files_in(folder: Path) -> list[Path]:
    """The cached files of the program's two kernels."""
    return sorted(path for path in folder.rglob("*.nb?") if path.name.startswith(("outer", "middle")))


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of compiled kernels, and a package with the three files."""
    folder, package = tmp_path / "kernels", tmp_path / "kernels_on_disk"
    folder.mkdir(mode=0o700)
    package.mkdir()
    for name, text in FILES.items():
        (package / name).write_text(text)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder))
    yield folder
    _forget_modules()


def _forget_modules() -> None:
    for name in [name for name in sys.modules if name.startswith("kernels_on_disk")]:
        del sys.modules[name]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to others")
def test_kernels_that_are_damaged_or_may_be_of_others_are_compiled_again(kernels: Path) -> None:
    def run() -> tuple[str, int]:
        """The results of modules imported again, as in a new process, and the number of warnings."""
        _forget_modules()
        jit_module.warn_once.cache_clear()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            outer = import_module("kernels_on_disk.outer").outer
            result = outer(1)
        return f"{result} {'from the disk' if outer.stats.cache_hits else 'compiled'}", len(warned)

    assert run() == ("2 compiled", 0)
    assert run() == ("2 from the disk", 0)
    for change in (lambda data: data[:-1], lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:]):
        for path in files_in(kernels):
            path.write_bytes(change(path.read_bytes()))
        assert run() == ("2 compiled", 0)
    for ending in (".nbi", ".nbc"):
        (path,) = (path for path in files_in(kernels) if path.name.startswith("outer") and path.suffix == ending)
        os.chown(path, 65534, -1)
        assert run() == ("2 compiled", 1)
        assert path.stat().st_uid == 0
    for ending in (".nbi", ".nbc"):
        for path in (path for path in files_in(kernels) if path.suffix == ending):
            path.unlink()
            os.mkfifo(path)
        assert run() == ("2 compiled", 0)  # nobody would ever write to the pipe
    kernels.chmod(0o777)
    before = [path.stat() for path in files_in(kernels)]
    assert run() == ("2 compiled", 1)
    assert [path.stat() for path in files_in(kernels)] == before


def test_a_link_at_a_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kernel.lock").symlink_to(tmp_path / "mine")
    with held(tmp_path / "kernel.lock", 1.0):
        pass
    assert not (tmp_path / "mine").exists()


#: The forms of importing a module from a package, each with the file of the module.
IMPORTS = {
    "a name from a module": "from {package}.deep.module import VALUE\n",
    "several names, in parentheses": "from {package}.deep.module import (\n    OTHER,\n    VALUE,\n)\n",
    "the module from its folder": "from {package}.deep import module\n",
    "the module by its whole name": "import {package}.deep.module\n",
    "by way of another module": "from {package}.between import VALUE\n",
}


@pytest.mark.parametrize("statement", IMPORTS.values(), ids=IMPORTS)
def test_the_sources_of_a_kernel_are_the_files_of_its_own_package_that_it_imports(
    statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"kernels_of_{abs(hash(statement))}"
    root = tmp_path / package
    (root / "deep").mkdir(parents=True)
    (root / "__init__.py").touch()
    (root / "deep" / "__init__.py").touch()
    (root / "deep" / "module.py").write_text("OTHER = VALUE = 1\n")
    (root / "between.py").write_text(f"from {package}.deep.module import VALUE\n")
    (root / "stranger.py").write_text("VALUE = 1\n")
    (root / "kernel.py").write_text(
        f"{statement.format(package=package)}import stranger_{package}\ndef kernel(): ...\n"
    )
    (tmp_path / f"stranger_{package}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    kernel = import_module(f"{package}.kernel").kernel

    def stamp() -> int:
        for memo in (jit_module.contents, jit_module.imported_files):
            memo.cache_clear()
        return sources(kernel)

    first = stamp()
    (root / "stranger.py").write_text("VALUE = 2\n")  # nobody imports it
    (tmp_path / f"stranger_{package}.py").write_text("VALUE = 2\n")  # of no package of ours
    assert stamp() == first
    (root / "deep" / "module.py").write_text("OTHER = VALUE = 2\n")
    assert stamp() != first


@jit
def _transpose(x, out):
    for row in range(x.shape[0]):
        for column in range(x.shape[1]):
            out[column, row] = x[row, column]
    return 0


def test_arrays_in_another_order_are_another_kind() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for order in "CFAC":
        source = np.repeat(x, 2, 1)[:, ::2] if order == "A" else np.array(x, order=order)
        out = np.zeros((3, 2), np.float32)
        bound(_transpose, source, out)()
        np.testing.assert_array_equal(out, x.T, err_msg=order)


def test_kernels_work_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    with pytest.warns(UserWarning, match="set NUMBA_CACHE_DIR to a folder of your own"):
        doubled = jit_module.jit(lambda x: 2 * x)
    assert doubled(21) == 42


def test_a_user_without_a_home_has_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.chdir(tmp_path)
    jit_module.warn_once.cache_clear()
    with pytest.warns(UserWarning, match="set NUMBA_CACHE_DIR to a folder of your own"):
        doubled = jit_module.jit(lambda x: 2 * x)
    assert doubled(21) == 42
    assert list(tmp_path.iterdir()) == []  # least of all one that is called ~
