"""Storages: the graph's value of each tensor of a trace, through views and changes in place.

A tensor is identified by its memory: its storage, and offset, sizes and strides in it. A change in place gives the
storage a new value; views of it are recomputed when they are read next.

    y = x[0]       y is made from x by a slice
    y += 1         the value of x becomes x with y + 1 at [0]
    x.sum()        reads the new value
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import numpy as np
import torch

from ipu_emu.ops import Value
from ipu_emu.poptorch.dtypes import as_numpy
from ipu_emu.poptorch.errors import refusal
from ipu_emu.poptorch.graph_writer import GraphWriter

_Key = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]
#: Computes a view from another value of its base.
Replay = Callable[[Value], Value]


@dataclass
class _View:
    value: Value
    generation: int
    base: _Key | None = None
    replay: Replay | None = None


@dataclass
class _Storage:
    root: _Key
    held: torch.UntypedStorage  # keeps its address from being reused
    views: dict[_Key, _View] = field(default_factory=dict)
    generation: int = 0


def _key(tensor: torch.Tensor) -> _Key:
    return tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype


def _address(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except NotImplementedError:
        raise refusal(
            "forward uses tensors without memory of their own, such as those of torch.func.grad, which cannot be "
            "recorded; write derivatives as ops of forward"
        ) from None


class Storages:
    """The values of tensors; those that do not depend on the device are constants.

    ``earlier``: those of an earlier recording, whose tensors the module may have kept.
    """

    def __init__(self, writer: GraphWriter, earlier: Storages | None = None) -> None:
        self._writer, self._earlier = writer, earlier
        self._storages: dict[int, _Storage] = {}

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor depends on values of the device."""
        return _address(tensor) in self._storages

    def is_of_an_earlier_call(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor depends on values of the device in an earlier recording alone."""
        return self._earlier is not None and self._earlier.knows(tensor) and not self.knows(tensor)

    def set(self, tensor: torch.Tensor, value: Value) -> None:
        """Give a tensor with memory of its own a value."""
        key = _key(tensor)
        storage = _Storage(key, tensor.untyped_storage())
        storage.views[key] = _View(value, 0)
        self._storages[_address(tensor)] = storage

    def changes(self, tensor: torch.Tensor) -> int:
        """Return how often the memory of a tensor was changed in place."""
        storage = self._storages.get(_address(tensor))
        return 0 if storage is None else storage.generation

    def read(self, tensor: torch.Tensor) -> Value:
        """Return the current value of a tensor."""
        storage = self._storages.get(_address(tensor))
        if storage is None:
            return self._writer.constant(as_numpy(tensor, copy=True))
        return self._read(storage, _key(tensor))

    def _read(self, storage: _Storage, key: _Key) -> Value:
        view = storage.views.get(key)
        if view is None:
            view = storage.views[key] = _View(self._gathered(storage, key), storage.generation)
        if view.generation != storage.generation:
            if view.replay is None or view.base is None:
                view.value = self._gathered(storage, key)
            else:
                view.value = view.replay(self._read(storage, view.base))
            view.generation = storage.generation
        return view.value

    def view(self, base: torch.Tensor, tensor: torch.Tensor, value: Value, replay: Replay) -> None:
        """Record how a view is computed from ``base``."""
        if _address(tensor) != _address(base):
            self.set(tensor, value)
            return
        storage = self._storages[_address(base)]
        key = _key(tensor)
        if key not in storage.views and key != _key(base):
            storage.views[key] = _View(value, storage.generation, _key(base), replay)

    def turned(self, tensor: torch.Tensor, value: Value) -> None:
        """Record the value of a tensor whose sizes and strides were changed in place, but not its elements.

        Views that were made from it before are no longer replayed, as they would read its new sizes.
        """
        storage = self._storages[_address(tensor)]
        for view in storage.views.values():
            view.base = view.replay = None
        storage.views.setdefault(_key(tensor), _View(value, storage.generation))

    def prepare(self, tensor: torch.Tensor) -> None:
        """Make the storage of a constant part of the graph, before a change in place."""
        if self.knows(tensor):
            return
        memory = self._whole(tensor)
        self.set(memory, self._writer.constant(as_numpy(memory, copy=True)))

    @staticmethod
    def _whole(tensor: torch.Tensor) -> torch.Tensor:
        """All of the memory that a tensor is part of, in one axis."""
        size = tensor.untyped_storage().nbytes() // tensor.element_size()
        if tensor.is_contiguous() and tensor.numel() == size:
            return tensor
        return tensor.detach().as_strided((size,), (1,), 0)

    def write(self, tensor: torch.Tensor, value: Value) -> None:
        """Change a tensor in place."""
        storage, key = self._storages[_address(tensor)], _key(tensor)
        root = storage.views[storage.root]
        if key == storage.root:
            written = value
        else:
            written = self._replaced(self._read(storage, storage.root), storage.root, key, value)
        storage.generation += 1
        root.value, root.generation = written, storage.generation
        if key != storage.root and key in storage.views:
            storage.views[key].value = value
            storage.views[key].generation = storage.generation

    # Any view, by the indices of its elements

    def _indices(self, root: _Key, key: _Key) -> np.ndarray:
        """The positions of the elements of ``key`` among those of ``root``."""
        places = np.zeros((), np.int64) + root[0]
        for axis, (size, stride) in enumerate(zip(root[1], root[2], strict=True)):
            shape = [1] * len(root[1])
            shape[axis] = size
            places = places + np.arange(size).reshape(shape) * stride
        wanted = np.zeros((), np.int64) + key[0]
        for axis, (size, stride) in enumerate(zip(key[1], key[2], strict=True)):
            shape = [1] * len(key[1])
            shape[axis] = size
            wanted = wanted + np.arange(size).reshape(shape) * stride
        flat = np.broadcast_to(places, root[1]).reshape(-1)
        order = np.argsort(flat, kind="stable")
        positions = np.searchsorted(flat[order], wanted.reshape(-1))
        return order[np.minimum(positions, len(flat) - 1)].astype(np.int32)

    def _gathered(self, storage: _Storage, key: _Key) -> Value:
        root = self._read(storage, storage.root)
        flat = root.shaped((prod(storage.root[1]),))
        indices = self._writer.constant(self._indices(storage.root, key))
        return flat.op("Gather", indices, axis=0).shaped(key[1])

    def _replaced(self, root: Value, root_key: _Key, key: _Key, value: Value) -> Value:
        count, part = prod(root_key[1]), prod(key[1])
        flat, new = root.shaped((count,)), value.shaped((part,))
        indices = self._indices(root_key, key)
        first = int(indices[0]) if part else 0
        if part and np.array_equal(indices, np.arange(first, first + part)):
            pieces = [new]
            if first:
                pieces.insert(0, _slice(flat, 0, first))
            if first + part < count:
                pieces.append(_slice(flat, first + part, count))
            changed = pieces[0].op("Concat", *pieces[1:], axis=0) if len(pieces) > 1 else new
        else:
            changed = flat.op("ScatterElements", self._writer.constant(indices), new, axis=0)
        return changed.shaped(root_key[1])


def _slice(flat: Value, start: int, end: int) -> Value:
    return flat.emit("Slice", [flat], {"starts": [start], "ends": [end], "axes": [0]}, 1)[0]
