"""Formula: an element-wise function, written once, that a kernel computes alone or fused with others.

    Formula(lambda x, alpha: x * (x * alpha).of("sigmoid"), alpha=1.0)

A backend applies a named function to values: ``FormulaBuilder`` appends an instruction of ``ops.codegen.row_passes``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_emu.ops.codegen.row_passes import Instruction

#: (function name, values) -> value of the function; ("number", x) -> the constant x as a value.
Backend = Callable[..., Any]


@dataclass(frozen=True)
class Term:
    """A value in a formula; arithmetic on it applies functions."""

    backend: Backend
    value: Any

    def of(self, function: str, *others: Term | float) -> Term:
        """``function`` of this value and ``others``."""
        return Term(self.backend, self.backend(function, self.value, *(self.like(other).value for other in others)))

    def like(self, other: Term | float) -> Term:
        return other if isinstance(other, Term) else Term(self.backend, self.backend("number", other))

    def __add__(self, other: Term | float) -> Term:
        return self.of("add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self.of("sub", other)

    def __mul__(self, other: Term | float) -> Term:
        return self.of("mul", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self.of("div", other)

    def __neg__(self) -> Term:
        return self.of("neg")

    def where_positive(self, test: Term) -> Term:
        """This value where ``test`` is above 0, else 0."""
        return self.of("pass", test)

    def if_positive(self, yes: Term | float, no: Term | float) -> Term:
        """``yes`` where this value is above 0, else ``no``."""
        return self.of("if_positive", yes, no)


class Formula:
    """``function`` takes a term per input, then one per entry of ``parameters`` (attribute name: default)."""

    def __init__(self, function: Callable[..., Term], **parameters: float | str) -> None:
        self.function, self.parameters = function, parameters

    def __call__(self, backend: Backend, attributes: Mapping[str, Any], values: Sequence[Any]) -> Any:
        """The value for an op with these attributes."""
        return self.apply(backend, values, self.parameters_of(attributes))

    def parameters_of(self, attributes: Mapping[str, Any]) -> list[Any]:
        """The parameters of an op with these attributes, as float32."""
        values = [attributes.get(name, default) for name, default in self.parameters.items()]
        return [n if isinstance(n, str) else np.float32(n) for n in values]

    def apply(self, backend: Backend, values: Sequence[Any], parameters: Sequence[Any]) -> Any:
        return self.function(*(Term(backend, value) for value in values), *parameters).value


def named(function: str) -> Formula:
    """The formula that is one function of all inputs."""
    return Formula(lambda x, *others: x.of(function, *others))


class FormulaBuilder:
    """Collects the instructions of a fused kernel; a value is the number of the instruction that computes it."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []

    def __call__(self, function: str, *values: Any) -> int:
        """Append the instructions of ``function`` and return the number of its value."""
        if function in _COMPOSED:
            return int(_COMPOSED[function](*(Term(self, value) for value in values)).value)
        operands = [float(np.float32(value)) for value in values] if function == "number" else values
        self.instructions.append((function, *operands))
        return len(self.instructions) - 1


#: Functions that no single instruction computes.
_COMPOSED: Mapping[str, Callable[..., Term]] = {
    "if_positive": lambda x, yes, no: x.like(1.0).where_positive(x).of("choose", yes, no),
    "negative_part": lambda x: -(-x).of("relu"),
    "clip_to_unit": lambda x: -(-x.of("relu")).of("max", -1.0),
}
