"""PrintStyle: how PrintTensor writes a tensor as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.core.node import Node

__all__ = ["PrintStyle"]

_AUTO, _FIXED, _SCIENTIFIC, _NONE = range(4)
_OMITTED = "..."


@dataclass(frozen=True)
class PrintStyle:
    """Nested brackets with a separator; above ``threshold`` elements only ``edges`` of each end of an axis.

    A number has ``digits`` digits: 1 is 1.0000000 with 8. Lines break between elements before ``width`` characters.
    """

    threshold: int = 1000
    edges: int = 3
    width: int = 75
    digits: int = 8
    form: int = _AUTO
    separator: str = " "
    opening: str = "["
    closing: str = "]"

    @classmethod
    def of(cls, node: Node) -> PrintStyle:
        """Read the attributes of a PrintTensor."""
        return cls(
            int(node.attribute("summariseThreshold", 1000)),
            int(node.attribute("edgeItems", 3)),
            int(node.attribute("maxLineWidth", 75)),
            int(node.attribute("digits", 8)),
            int(node.attribute("floatFormat", _AUTO)),
            str(node.attribute("separator", " ") or " "),
            str(node.attribute("openBracket", "[")),
            str(node.attribute("closeBracket", "]")),
        )

    def text(self, values: NDArray[Any]) -> str:
        """The tensor as text."""
        words = self._words(values, short=values.size > self.threshold, number=self._formatter(values))
        lines, line = [], ""
        for word in words:
            if line and len(line) + len(word) > self.width:
                lines.append(line.rstrip())
                line = ""
            line += word
        return "\n".join([*lines, line])

    def _words(self, values: NDArray[Any], *, short: bool, number: Any) -> list[str]:
        """The text in pieces that are not broken, each with the separator that follows it."""
        if values.ndim == 0:
            return [number(values[()])]
        items: list[list[str]] = []
        cut = short and len(values) > 2 * self.edges
        for row in values[: self.edges] if cut else values:
            items.append(self._words(np.asarray(row), short=short, number=number))
        if cut:
            items.append([_OMITTED])
            for row in values[len(values) - self.edges :]:
                items.append(self._words(np.asarray(row), short=short, number=number))
        if not items:
            return [self.opening + self.closing]
        words = [word for item in items[:-1] for word in (*item[:-1], item[-1] + self.separator)] + items[-1]
        words[0] = self.opening + words[0]
        words[-1] += self.closing
        return words

    def _formatter(self, values: NDArray[Any]) -> Any:
        if values.dtype.kind == "b":
            return lambda value: str(int(value))
        if values.dtype.kind != "f":
            return str
        finite = np.abs(values[np.isfinite(values)])
        most = float(finite.max(initial=0))
        least = float(finite[finite > 0].min(initial=1)) if finite.size else 1.0
        digits = max(len(str(int(most))), 1)
        scientific = self.form == _AUTO and (digits > self.digits or least < 10.0 ** -(self.digits - 1))
        if self.form == _SCIENTIFIC or scientific:
            return lambda value: f"{float(value):.{max(self.digits - 1, 0)}e}"
        if self.form == _NONE:
            return lambda value: f"{float(value):g}"
        return lambda value: f"{float(value):.{max(self.digits - digits, 0)}f}"
