"""Inventory of TensorFlow's ops: each attribute with a default has a case off it, or is refused by its name.

The rows are TensorFlow's: the attributes of the ops that have a rule. ``test_rules.py`` compares the cases.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.ipu_emu.tensorflow.importer.rule_cases import CASES

Row = tuple[str, str]
#: Draws of each case, which are made without TensorFlow.
DRAWS = 60


class Calls:
    """Stands for ``tf.raw_ops``: its functions record the attributes that are off their defaults."""

    def __init__(self, raw: Any) -> None:
        self.raw, self.rows = raw, set[Row]()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self.raw, name)

        @functools.wraps(function)
        def call(**arguments: Any) -> Any:
            self.rows |= {(name, key) for key, value in arguments.items() if not equals(defaults(name).get(key), value)}
            return [np.zeros(1)] * 8

        return call


def equals(default: Any, value: Any) -> bool:
    return not isinstance(value, np.ndarray) and bool(default == value)


@functools.cache
def defaults(name: str) -> dict[str, Any]:
    """The values of attributes that have defaults, without element types."""
    from tensorflow.python.framework import op_def_registry

    kinds = {"bool": "b", "int": "i", "float": "f"}
    entries = [entry for entry in op_def_registry.get(name).attr if entry.HasField("default_value")]
    found = {}
    for entry in entries:
        if entry.type in kinds:
            found[entry.name] = getattr(entry.default_value, kinds[entry.type])
        elif entry.type == "string":
            found[entry.name] = entry.default_value.s.decode()
        elif entry.type != "type":
            found[entry.name] = list(entry.default_value.list.i)
    return found


def rows() -> set[Row]:
    from ipu_emu.tensorflow.importer.node import WITHOUT_EFFECT
    from ipu_emu.tensorflow.importer.rules.table import RULES

    return {(op, name) for op in RULES for name in defaults(op).keys() - WITHOUT_EFFECT}
