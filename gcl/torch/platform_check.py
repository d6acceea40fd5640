"""Platform check: says in one sentence what to do where PyTorch's programs cannot run on gcl."""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["check_platform"]


def check_platform() -> None:
    """Raise ImportError if PyTorch is missing, or the system is not Linux."""
    if sys.platform != "linux":
        raise ImportError(
            f"gcl.torch needs Linux, whose processes can share memory without a name, but this is {sys.platform}; "
            'use init_process_group("gloo") here, or a Linux container'
        )
    if importlib.util.find_spec("torch") is None:
        raise ImportError("gcl.torch needs PyTorch, which is not installed; pip install 'poprun-py[torch]'")
