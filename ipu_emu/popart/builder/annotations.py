"""Annotations: the current attributes and name scopes for the nodes that the Builder adds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ipu_emu.popart.builder.node_attributes import attribute_value

__all__ = ["SCHEDULE_PRIORITY", "Annotations"]

SCHEDULE_PRIORITY = "__schedule_priority"


class Annotations:
    """The current attributes and scopes; leaving a context restores the previous ones."""

    def __init__(self) -> None:
        self.current: dict[str, Any] = {}
        self.scopes: list[str] = []

    @contextmanager
    def attribute(self, name: str, value: Any) -> Iterator[None]:
        before = dict(self.current)
        self.current[name] = attribute_value(value)
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        self.scopes.append(name)
        try:
            yield
        finally:
            self.scopes.pop()

    @property
    def prefix(self) -> str:
        """The prefix of an id: the names of the open name scopes."""
        return "".join(f"{scope}/" for scope in self.scopes)
