"""Abort and PrintTensor: ops that end the step with an error, or print a tensor and its gradient (aiGraphcore)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import ApplicationRuntimeError
from ipu_emu.graph.dtype import BOOL
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, copy_cost
from ipu_emu.ops.core.shape_rules import same

_AUTO, _FIXED, _SCIENTIFIC, _NONE = range(4)
_OMITTED = "..."


@dataclass(frozen=True)
class _PrintStyle:
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
    def of(cls, node: Node) -> _PrintStyle:
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
        integer_digits = max(len(str(int(most))), 1)
        scientific = self.form == _AUTO and (integer_digits > self.digits or least < 10.0 ** -(self.digits - 1))
        if self.form == _SCIENTIFIC or scientific:
            return lambda value: f"{float(value):.{max(self.digits - 1, 0)}e}"
        if self.form == _NONE:
            return lambda value: f"{float(value):g}"
        return lambda value: f"{float(value):.{max(self.digits - integer_digits, 0)}f}"


ABORT = "Abort"
#: Ops that run although nothing reads their results.
KEPT = frozenset({ABORT, "PrintTensor", "PrintedGradient"})


def _abort_shape(node: Node) -> OutputTypes:
    if node.has_input(0) and node.input(0).nelms != 1:
        raise node.fail(f"the input must be a scalar, found {node.input(0)}")
    return [(BOOL, ())]


def _abort(bound: BoundOp) -> Call:
    test = bound.input(0) if bound.inputs else None
    op, done = bound.node.op, bound.outputs[0]

    def run() -> None:
        done[()] = test is None or bool(test.any())
        if done:
            raise ApplicationRuntimeError(f"The program was aborted by Op {op.type} ({op.outputs[0]})")

    return run


# PrintTensor


#: Prints the gradient of a PrintTensor.
_PRINTED = "PrintedGradient"


def _print(bound: BoundOp) -> Call:
    node, x, y = bound.node, bound.input(0), bound.outputs[0]
    title = str(node.attribute("title", "")) or node.op.inputs[0]
    style = _PrintStyle.of(node)

    def run() -> None:
        np.copyto(y, x)
        sys.stderr.write(f"{title}: {style.text(x)}\n")

    return run


def _grad(d: Adjoint) -> Value:
    if not d.attribute("print_gradient", 1):
        return d.g
    title = d.attribute("title", "") or d.node.op.inputs[0]
    own = d.attribute("gradient_title", "") or f"Gradient___{title}"
    return d.g.op(_PRINTED, **{**d.node.op.attributes, "title": own})


def _entry(type: str, domain: str = "") -> OpDef:
    """An op that is never folded: it must run in every step, even if its input is constant."""
    grad = _grad if domain else None
    return OpDef(type, (1, 1), same, _print, copy_cost, grad, elementwise=True, domain=domain, random=True)


OPS = [
    # ``random`` prevents folding: the input may be constant, but the op must run in the step.
    OpDef(ABORT, (0, 1), _abort_shape, _abort, copy_cost, domain=GRAPHCORE, random=True),
    _entry("PrintTensor", GRAPHCORE),
    _entry(_PRINTED),
]
