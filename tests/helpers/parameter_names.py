"""Names of parameters: readable ids of parametrised tests for values other than short texts and numbers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

__all__ = ["parameter_name"]

_LONGEST = 60


def parameter_name(value: object) -> str | None:
    """A short text for the content of a value, the same in every process; None if pytest's own id is sufficient."""
    if isinstance(value, str) and len(value) <= _LONGEST:
        return None
    if isinstance(value, bytes):
        return _shortened(repr(value)[2:-1]) if len(value) > _LONGEST else None
    if value is None or isinstance(value, bool | int | float | complex | Enum | re.Pattern):
        return None
    if hasattr(value, "__name__"):  # a class or a function
        return None
    if isinstance(value, list | tuple):  # without the brackets of those inside it
        return _shortened(ascii(" ".join(map(_text, value)))[1:-1])
    return _shortened(ascii(_text(value))[1:-1])


def _text(value: Any) -> str:
    """Describe a value in one line."""
    name = getattr(value, "__name__", None) or (value.name if isinstance(value, Enum) else None)
    if isinstance(name, str):
        return name
    if isinstance(value, Mapping):
        return " ".join(f"{_text(name)}={_text(entry)}" for name, entry in value.items())
    if isinstance(value, set | frozenset):
        return " ".join(sorted(map(_text, value)))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if hasattr(value, "dtype") and getattr(value, "shape", ()):
        return f"{value.dtype}[{'x'.join(map(str, value.shape))}]"
    if dataclasses.is_dataclass(value):
        return _dataclass_text(value)
    text = str(value)
    return type(value).__name__ if " at 0x" in text else text


def _dataclass_text(value: Any) -> str:
    """Its class, and the fields whose values are not the default."""
    said = {}
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if field.repr and not (type(content) is type(default) and _text(content) == _text(default)):
            said[field.name] = content
    return f"{type(value).__name__} {_text(said)}".strip()


def _shortened(text: str) -> str:
    """The start of a text; repeated parts are written once, with their count."""
    text = re.sub(r"(.)\1{29,}", lambda match: f"{match[1]}*{len(match[0])}", text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3].rstrip()}..."
