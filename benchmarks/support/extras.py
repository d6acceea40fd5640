"""Extras: packages that only some benchmarks need, and the extra of this project that installs them."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

__all__ = ["need"]


def need(package: str, *, extra: str) -> None:
    """End the program with a message what to install if ``package``, which may be a module, is missing."""
    try:
        import_module(package)
    except ModuleNotFoundError:
        program = Path(sys.argv[0]).name
        sys.exit(f"{program} needs {package.partition('.')[0]}, which is not installed; pip install -e '.[{extra}]'")
