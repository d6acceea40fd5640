"""_impl: PopTorch's internals, which are refused by name."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"poptorch._impl.{name} is internal to PopTorch and not emulated; use the public names of poptorch"
    )
