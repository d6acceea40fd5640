"""Graph writer: appends ops to the graph of a trace, named by module and placed by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.graph.dtype import dtype_of
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops import TABLE, Value, append
from ipu_emu.ops.random.counter_rng import STREAM_ID, key_in

#: The attribute with the block of an op, from which its IPU and stage are determined at compilation.
BLOCK = "__poptorchBlock"


class GraphWriter:
    """Appends ops: ``scope`` is the path of the current module, ``block`` the number of its block.

    If ``scoped``, names of tensors begin with the path.
    """

    def __init__(self, *, scoped: bool = True) -> None:
        self.graph = Graph()
        self._scoped = scoped
        self.scope, self.block = "", 0
        self._counts: Counter[str] = Counter()
        self._constants: dict[tuple[Any, ...], Value] = {}
        self._drawn = 0
        #: The sources of transposed matrices, by the ids of the results.
        self.transposed: dict[str, Value] = {}

    def name(self, base: str) -> str:
        """Return an unused id."""
        number = self._counts[base]
        self._counts[base] += 1
        return f"{base}:{number}"

    def value(self, tensor: Tensor) -> Value:
        """Return a tensor of the graph as a value to compute with."""
        return Value(tensor, self.emit, self.graph.constant)

    def emit(
        self, type: str, inputs: Sequence[Value | None], attributes: dict[str, Any], outputs: int = 1
    ) -> list[Value]:
        """Append an op, of ONNX if PopART has one of the same name."""
        domain = "" if ("", type) in TABLE.table else GRAPHCORE
        return self.emit_in(domain, type, inputs, attributes, outputs)

    def emit_in(
        self, domain: str, type: str, inputs: Sequence[Value | None], attributes: dict[str, Any], outputs: int = 1
    ) -> list[Value]:
        """Append an op of ``domain``; inputs may be absent."""
        scope = f"{self.scope}/" if self.scope and self._scoped else ""
        names = tuple(self.name(f"{scope}{type}") for _ in range(outputs))
        ids = tuple("" if value is None else value.tensor.id for value in inputs)
        placed = {BLOCK: self.block} | attributes
        op = Op(type, ids, names, placed, domain, 13, self.scope)
        return [self.value(tensor) for tensor in append(self.graph, op)]

    def constant(self, array: NDArray[Any]) -> Value:
        """Return a constant, the same for small arrays of equal values."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        small = array.size <= 64
        key = (str(array.dtype), array.shape, array.tobytes()) if small else ()
        if key not in self._constants or not small:
            tensor = Tensor(self.name("constant"), dtype_of(array), array.shape, Role.CONSTANT)
            self._constants[key] = self.value(self.graph.add(tensor, array))
        return self._constants[key]

    def random(self, type: str, shape: Sequence[int], dtype: int, values: Sequence[float]) -> Value:
        """Return random numbers that differ between calls, micro-batches, steps and replicas."""
        self._drawn += 1
        key = self.value(self.graph.tensor(key_in(self.graph)))
        attributes = {"shape": list(shape), "dtype": dtype, "values": list(values), STREAM_ID: self._drawn}
        return self.emit(type, [key], attributes)[0]
