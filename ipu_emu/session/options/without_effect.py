"""Without effect: settings that only tune a real IPU, its compiler or its reports, which a warning names."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

__all__ = ["say_without_effect"]


def say_without_effect(kind: str, names: Iterable[str], *, stacklevel: int = 1) -> None:
    """Warn that settings of this ``kind`` have no effect; Python shows a warning of the same line and text once."""
    listed = sorted(names)
    if listed:
        verb = "has" if len(listed) == 1 else "have"
        text = f"{kind} {', '.join(listed)} {verb} no effect on emulated IPUs"
        warnings.warn(text, stacklevel=stacklevel + 1)
