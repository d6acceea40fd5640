"""Elements: the elements of a data set that an execution takes, one for each step and replica."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.util import nest

from gcl.kernels.uninterrupted import uninterrupted
from ipu_emu.errors import UnsupportedError


class ElementGroup:
    """Consecutive elements of one ``spec``: ``steps`` of them for each replica."""

    def __init__(self, spec: Any, steps: int, elements: Iterator[Any]) -> None:
        self.spec, self.steps, self.elements = spec, steps, elements


def groups_of(iterator: Any, steps: int, replicas: int) -> list[ElementGroup]:
    """Divide an execution of ``steps`` into groups of elements of the same shape.

    Elements of fixed sizes are taken from the iterator one by one while the program runs; others are all taken
    before, as the last one may be smaller. Raise OutOfRangeError if there is none.
    """
    spec = iterator.element_spec
    _check(spec)
    if all(leaf.shape.is_fully_defined() for leaf in nest.flatten(spec)):
        return [ElementGroup(spec, steps, iterator)]
    taken: list[Any] = []
    for _ in range(steps * replicas):
        try:
            with uninterrupted():
                taken.append(next(iterator))
        except (StopIteration, errors.OutOfRangeError):
            break
    if not taken:
        raise errors.OutOfRangeError(None, None, "The data set has no more elements")
    return [_group(elements, replicas) for elements in _neighbours(taken) if len(elements) >= replicas]


def _check(spec: Any) -> None:
    for leaf in nest.flatten(spec):
        if not isinstance(leaf, tensor_lib.TensorSpec):
            raise UnsupportedError(
                f"The data set has elements of {type(leaf).__name__}, which the IPU does not take; make them dense"
            )


def _neighbours(elements: Sequence[Any]) -> list[list[Any]]:
    """Group consecutive elements of the same shapes."""
    groups: list[list[Any]] = []
    for element in elements:
        if groups and _shapes(groups[-1][0]) == _shapes(element):
            groups[-1].append(element)
        else:
            groups.append([element])
    return groups


def _shapes(element: Any) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in nest.flatten(element)]


def _group(elements: list[Any], replicas: int) -> ElementGroup:
    spec = nest.map_structure(lambda tensor: tensor_lib.TensorSpec(tensor.shape, tensor.dtype), elements[0])
    return ElementGroup(spec, len(elements) // replicas, iter(elements))
