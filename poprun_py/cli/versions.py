"""Versions: the output of --version: of poprun-py, and in the full formats of all its dependencies.

The short form must be fast, so the other forms import what they need when they are requested.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires, version

_PACKAGE = "poprun-py"


def versions_text(form: str) -> str:
    """Return the text in the format ``form``: text (one line), full-text (a line per part) or full-json."""
    if form == "text":
        return f"{_PACKAGE} {version(_PACKAGE)}\n"
    parts = _parts()
    if form == "full-json":
        import json

        return json.dumps(parts, indent=2) + "\n"
    width = max(map(len, parts))
    return "".join(f"{name.ljust(width)}  {value}\n" for name, value in parts.items())


def _parts() -> dict[str, str]:
    import platform

    ours = version(_PACKAGE)
    return {
        _PACKAGE: ours,
        "popdist-py": ours,
        **{name: _version_of(name) for name in _dependencies()},
        "mpi": _mpi(),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def _dependencies() -> list[str]:
    """Names of the package's dependencies, without extras."""
    import re

    needed = [line for line in requires(_PACKAGE) or [] if "extra ==" not in line]
    return sorted(re.split("[<>=!~ [;]", line)[0] for line in needed)


def _version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _mpi() -> str:
    import os
    import re

    from poprun_py.errors import MpiNotFoundError
    from poprun_py.site.machine import Machine
    from poprun_py.site.mpi_installation import find_mpi, version_text

    machine = Machine.here()
    try:
        mpi = find_mpi(None, environ=machine.environ, cwd=machine.cwd, python=machine.python)
    except MpiNotFoundError:
        return "not found"
    said = re.search(r"\d+\.\d+[\w.]*", version_text(mpi.launcher))
    return f"{mpi.kind} {said[0] if said else 'of unknown version'} at {os.path.dirname(mpi.launcher)}"
