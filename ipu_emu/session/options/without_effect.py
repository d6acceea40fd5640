"""Without effect: settings that only tune a real IPU, its compiler or its reports, which a warning names."""

from __future__ import annotations

from collections.abc import Iterable

from popdist_py.messages.user_warning import warn_user


def say_without_effect(kind: str, names: Iterable[str]) -> None:
    """Warn that settings of this ``kind`` have no effect; Python shows a warning of the same line and text once."""
    listed = sorted(names)
    if listed:
        warn_user(f"{kind} {', '.join(listed)} {'has' if len(listed) == 1 else 'have'} no effect on emulated IPUs")
