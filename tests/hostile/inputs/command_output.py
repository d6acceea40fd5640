"""Command output: the messages of commands for invalid input, run in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.poprun_py.cli.test_malformed_command_lines import outcome

__all__ = ["environment", "faults_of_launcher"]

#: Variables that the launcher and the libraries read.
_READ = ("POP", "GCL_", "IPU", "SLURM_", "OMPI_", "MPI4PY", "TF_POPLAR")

#: The exit codes of a shell for programs that cannot be started: with another PATH there is no "true".
_NO_PROGRAM = (126, 127)


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set these variables, and unset all others that we read, within the block."""
    before = dict(os.environ)
    try:
        for name in [name for name in os.environ if name.startswith(_READ)]:
            del os.environ[name]
        for name, value in values.items():
            os.environb[name.encode(errors="surrogateescape")] = value.encode(errors="surrogateescape")
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def faults_of_launcher(line: Sequence[str]) -> list[str]:
    """Run poprun-py with ``line``: it must print a plan, or a message with the exit code of a usage error."""
    code, out, err = outcome(["--dry-run", *line])
    where = f"poprun-py --dry-run {list(line)!r}"
    if "Traceback" in err:
        return [where, err]
    if code == 0:
        return [] if out else [where, "code 0, but it says nothing"]
    if code not in (2, *_NO_PROGRAM) or out:
        return [where, f"code {code}, stdout {out[-300:]!r}, stderr {err[-1000:]!r}"]
    strangers = [text for text in err.splitlines() if not text.startswith("poprun-py: ")]
    return [where, f"lines that are no messages: {strangers}"] if strangers or not err else []
