"""Kept errors: prints the stderr of a test process that died, such as the message of an abort in C++.

Pytest captures stderr in a file without a name, which is lost when a worker of pytest-xdist dies.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

_PATH = "kept_errors"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker the path of its file."""
    descriptor, path = tempfile.mkstemp(prefix=f"stderr-{node.gateway.id}-")
    os.close(descriptor)
    node.workerinput[_PATH] = path


def pytest_configure(config: pytest.Config) -> None:
    """Make a worker capture its stderr in the file that it was given, which always has that of the current test."""
    path = getattr(config, "workerinput", {}).get(_PATH)
    manager: Any = config.pluginmanager.getplugin("capturemanager")
    captured = getattr(getattr(manager, "_global_capturing", None), "err", None)
    if path is None or not hasattr(captured, "targetfd"):
        return
    manager.suspend_global_capture()
    with open(path, "r+b", buffering=0) as file:
        os.dup2(file.fileno(), captured.tmpfile.fileno(), inheritable=False)
    manager.resume_global_capture()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """Print the stderr of a worker that died."""
    path = Path(node.workerinput[_PATH])
    left = path.read_text(errors="replace").strip() if error else ""
    path.unlink()
    if left:
        reporter = node.config.pluginmanager.getplugin("terminalreporter")
        reporter.write_line(f"\nstderr of {node.gateway.id}, which died:\n{left}", red=True)
