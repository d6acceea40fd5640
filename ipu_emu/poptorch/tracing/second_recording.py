"""Second recording: forward runs again with other data and other random numbers, and must record the same graph.

A graph is recorded once and runs many times, so what Python decides in forward must not change between calls:
counters, schedules, random numbers of Python and numpy, and values that it reads from tensors.
"""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ipu_emu.graph import Graph, Op, Role
from ipu_emu.poptorch.errors import Error

#: Seeds of Python and of numpy, whose first numbers are near 0, near 1 and between: branches go both ways.
_SEEDS = ((1514, 1146), (2172, 1989), (7, 7), (8, 8))
#: The names of modules' attributes that hold their parts.
_PARTS = ("_parameters", "_buffers", "_modules")


def other_data(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return other values that suit the same uses: each last axis backwards, and floating-point numbers smaller."""
    turned = [tensor.detach().flip(-1) if tensor.dim() else tensor.detach() for tensor in inputs]
    return [tensor * 0.75 if tensor.is_floating_point() else tensor for tensor in turned]


def random_states() -> tuple[Any, ...]:
    """Return the states of the generators of Python and numpy, to compare."""
    _, keys, place, *_ = np.random.get_state(legacy=True)
    return random.getstate(), bytes(np.asarray(keys)), place


def seeds(*, drawn: bool) -> Sequence[tuple[int, int]]:
    """Return the seeds of further recordings: several if forward has drawn numbers of Python or numpy."""
    return _SEEDS if drawn else _SEEDS[:1]


@contextlib.contextmanager
def other_state(module: torch.nn.Module, seeds: tuple[int, int]) -> Iterator[None]:
    """Context manager: other random numbers, no output; at its end the program's state is as before."""
    state, numbers, tensors = random.getstate(), np.random.get_state(), torch.get_rng_state()
    held = [
        (submodule, {k: v for k, v in submodule.__dict__.items() if k not in _PARTS})
        for submodule in module.modules()
    ]
    random.seed(seeds[0])
    np.random.seed(seeds[1])
    torch.manual_seed(seeds[0])
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numbers)
        torch.set_rng_state(tensors)
        for submodule, attributes in held:
            submodule.__dict__.update(attributes)


def check_same(first: Graph, second: Graph, line: Any) -> None:
    """Raise poptorch.Error with the first difference; ``line`` returns the program's line of an op of ``second``."""
    for number, (op, other) in enumerate(zip(first.ops, second.ops, strict=False)):
        difference = _difference(first, op, second, other)
        if difference:
            raise _changed(other, line(number), difference)
    if len(first.ops) != len(second.ops):
        graph, number = max(((g, len(g.ops)) for g in (first, second)), key=lambda pair: pair[1])
        extra = graph.ops[min(len(first.ops), len(second.ops))]
        raise _changed(extra, line(len(second.ops)), f"{len(first.ops)} ops, then {len(second.ops)}")


def _changed(op: Op, line: str, difference: str) -> Error:
    return Error(
        f"forward is not the same in every call: {op.type} in module '{op.name or 'the model'}' ({line}) was "
        f"recorded with {difference}. The graph is recorded once, so that Python's counters, random numbers and "
        "values read from tensors would be frozen; keep what changes in a buffer or an input, and draw random "
        "numbers with torch"
    )


def _difference(first: Graph, op: Op, second: Graph, other: Op) -> str:
    if op.type != other.type:
        return f"{op.type}, then {other.type}"
    if op.attributes != other.attributes and not _equal(op.attributes, other.attributes):
        name = next(n for n in op.attributes if not _equal(op.attributes[n], other.attributes.get(n)))
        return f"{name} = {op.attributes[name]}, then {other.attributes.get(name)}"
    for a, b in zip(op.inputs, other.inputs, strict=False):
        values = [g.data.get(id) if _is_constant(g, id) else None for g, id in ((first, a), (second, b))]
        if (values[0] is None) != (values[1] is None) or (values[0] is None and a != b):
            return f"input {a}, then {b}"
        if values[0] is not None and values[0] is not values[1] and not _equal(*values):
            return f"{_text(values[0])}, then {_text(values[1])}"
    return ""


def _is_constant(graph: Graph, id: str) -> bool:
    return bool(id) and graph.tensors[id].role is Role.CONSTANT


def _text(value: Any) -> str:
    return str(value) if value.size == 1 else f"{value.dtype} {list(value.shape)} with {value.reshape(-1)[:3]}"


def _equal(first: Any, other: Any) -> bool:
    if isinstance(first, np.ndarray) or isinstance(other, np.ndarray):
        same = np.shape(first) == np.shape(other)
        return bool(same and np.array_equal(first, other, equal_nan=np.asarray(first).dtype.kind == "f"))
    if isinstance(first, Mapping) and isinstance(other, Mapping):
        return first.keys() == other.keys() and all(_equal(first[name], other[name]) for name in first)
    return bool(first == other or (first != first and other != other))
