"""Attribute values: what callers give for an attribute, as a model keeps it."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["attribute_value"]


def attribute_value(value: Any) -> Any:
    """Truth as a number, numpy's scalars and arrays as Python's numbers and lists; all else as it is."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list | tuple):
        return [attribute_value(one) for one in value]
    return value
