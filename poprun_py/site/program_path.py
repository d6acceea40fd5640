"""Program path: the file of the program, found as the user's shell would find it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from poprun_py.errors import ProgramError

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as shells have it


def find_program(name: str, *, environ: Mapping[str, str], cwd: str) -> str:
    """Return the file that running ``name`` in ``cwd`` would execute; raise ProgramError if there is none."""
    if os.sep in name:
        return _executable(name, [os.path.join(cwd, name)], why="no such file; check its spelling")
    path = environ.get("PATH", os.defpath)
    candidates = [os.path.join(cwd, folder or os.curdir, name) for folder in path.split(os.pathsep)]
    is_here = os.path.isfile(os.path.join(cwd, name))
    return _executable(
        name, candidates, why=f"it is not on PATH; {_how_to_run(name) if is_here else 'check its spelling'}"
    )


def _executable(name: str, candidates: list[str], *, why: str) -> str:
    present = [path for path in candidates if os.path.isfile(path)]
    for path in present:
        if os.access(path, os.X_OK):
            _check_interpreter(name, path)
            return path
    if present:
        raise ProgramError(
            f"{name} cannot be run: {present[0]} is not executable; {_remedy(name)}", exit_code=_NOT_EXECUTABLE
        )
    if os.path.isdir(candidates[0]) and os.sep in name:
        raise ProgramError(f"{name} cannot be run: it is a folder; name a file", exit_code=_NOT_EXECUTABLE)
    raise ProgramError(f"{name} cannot be run: {why}", exit_code=_NOT_FOUND)


def _check_interpreter(name: str, path: str) -> None:
    """Raise ProgramError for a script whose first line names an interpreter that is not there."""
    try:
        with open(path, "rb") as stream:
            line = stream.read(256).split(b"\n")[0]
    except OSError:  # it may be run, but not read
        return
    words = line[2:].split()
    if line.startswith(b"#!") and words and not os.path.exists(words[0]):
        interpreter = os.fsdecode(words[0])
        raise ProgramError(
            f"{name} cannot be run: its first line names {interpreter}, which does not exist; correct the line, or "
            f"put an interpreter before {name}",
            exit_code=_NOT_EXECUTABLE,
        )


def _how_to_run(name: str) -> str:
    """The advice how to run a file of the current folder."""
    return f"put python before it: poprun-py python {name}" if name.endswith(".py") else f"to run it here: ./{name}"


def _remedy(name: str) -> str:
    return _how_to_run(name) if name.endswith(".py") else f"make it so: chmod +x {name}"
