"""Signatures: the parameters of each op of the Builder, which callers may give by position.

A row is (name, ONNX type, {first opset: parameters}). Parameters follow ``args``; ``debugContext`` comes last. A
``num_outputs`` among them means that the op returns a list of ids. Source: PopART 3.4, the generated opset classes.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ipu_emu.errors import EmulatorError

__all__ = ["AI_GRAPHCORE", "AI_ONNX", "REQUIRED", "Signature"]

#: Stands for the default of a parameter that has none.
REQUIRED = object()

_NONE = {6: ""}
_LEGACY_BROADCAST = {6: "axis=None broadcast=0", 7: ""}
_REDUCE = {6: "axes=None keepdims=1"}
_WINDOW = "kernel_shape {} pads=[] strides=[]"

AI_ONNX: dict[str, tuple[str, dict[int, str]]] = {
    "relu": ("Relu", _NONE),
    "sigmoid": ("Sigmoid", _NONE),
    "tanh": ("Tanh", _NONE),
    "exp": ("Exp", _NONE),
    "log": ("Log", _NONE),
    "sqrt": ("Sqrt", _NONE),
    "neg": ("Neg", _NONE),
    "identity": ("Identity", _NONE),
    "add": ("Add", _LEGACY_BROADCAST),
    "sub": ("Sub", _LEGACY_BROADCAST),
    "mul": ("Mul", _LEGACY_BROADCAST),
    "div": ("Div", _LEGACY_BROADCAST),
    "matmul": ("MatMul", _NONE),
    "gemm": (
        "Gemm",
        {6: "alpha=1.0 beta=1.0 broadcast=0 transA=0 transB=0", 7: "alpha=1.0 beta=1.0 transA=0 transB=0"},
    ),
    "conv": ("Conv", {6: "dilations=[] group=1 kernel_shape=[] pads=[] strides=[]"}),
    "maxpool": (
        "MaxPool",
        {
            6: "kernel_shape pads=[] strides=[]",
            8: "num_outputs kernel_shape pads=[] storage_order=0 strides=[]",
            10: "num_outputs kernel_shape ceil_mode=0 dilations=[] pads=[] storage_order=0 strides=[]",
        },
    ),
    "averagepool": (
        "AveragePool",
        {
            6: "kernel_shape pads=[] strides=[]",
            7: "kernel_shape count_include_pad=0 pads=[] strides=[]",
            10: "kernel_shape ceil_mode=0 count_include_pad=0 pads=[] strides=[]",
        },
    ),
    "softmax": ("Softmax", {6: "axis=1"}),
    "logsoftmax": ("LogSoftmax", {6: "axis=1"}),
    "reducesum": ("ReduceSum", _REDUCE),
    "reducemean": ("ReduceMean", _REDUCE),
    "reshape": ("Reshape", _NONE),
    "transpose": ("Transpose", {6: "perm=[]"}),
    "flatten": ("Flatten", {6: "axis=1"}),
    "cast": ("Cast", {6: "to"}),
    "constant": ("Constant", {6: "value", 11: "value is_value_sparse=False"}),
}

AI_GRAPHCORE: dict[str, tuple[str, dict[int, str]]] = {
    "l1loss": ("L1", {1: "lambda reduction=None"}),
    "nllloss": ("Nll", {1: "reduction=None ignoreIndex=None inputIsLogProbability=False"}),
    "identityloss": ("IdentityLoss", {1: "reduction=None"}),
    "scale": ("Scale", {1: "scale"}),
    "nop": ("Nop", {1: ""}),
    "detach": ("Detach", {1: ""}),
    "reshape": ("Reshape", {1: "shape"}),
}


@dataclass(frozen=True)
class Signature:
    """Parameters of one op in one opset, with their defaults."""

    name: str
    type: str
    takes_args: bool
    defaults: dict[str, Any]

    @classmethod
    def of(cls, name: str, row: tuple[str, dict[int, str]], opset: int) -> Signature:
        """The signature in force in ``opset``."""
        type, versions = row
        text = versions[max(version for version in versions if version <= opset)]
        defaults = dict(_parameter(word) for word in text.split())
        return cls(name, type, name != "constant", defaults)

    @property
    def returns_list(self) -> bool:
        return "num_outputs" in self.defaults

    def bind(self, values: Sequence[Any], named: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """(attributes, debug context) of a call; raise TypeError as Python does for a wrong call."""
        names = [*self.defaults, "debugContext"]
        if len(values) > len(names):
            raise TypeError(
                f"{self.name}() takes {len(names)} attributes ({', '.join(names)}), {len(values)} were given"
            )
        given = dict(zip(names, values, strict=False))
        for name, value in named.items():
            name = {"debugPrefix": "debugContext"}.get(name, name)
            if name not in names:
                raise TypeError(f"{self.name}() has no attribute {name!r}; it has {', '.join(names)}")
            if name in given:
                raise TypeError(f"{self.name}() got two values for {name!r}")
            given[name] = value
        context = given.pop("debugContext", "")
        bound = self.defaults | given
        missing = [name for name, value in bound.items() if value is REQUIRED]
        if missing:
            raise TypeError(f"{self.name}() needs {', '.join(missing)}")
        return bound, str(context or "")


def _parameter(word: str) -> tuple[str, Any]:
    name, _, default = word.partition("=")
    return name, literal_eval(default) if default else REQUIRED


def signature(name: str, table: dict[str, tuple[str, dict[int, str]]], opset: int) -> Signature:
    """Look up an op; raise EmulatorError naming the ops there are."""
    row = table.get(name)
    if row is None or min(row[1]) > opset:
        raise EmulatorError(f"No op '{name}' in opset {opset}; there are {', '.join(sorted(table))}")
    return Signature.of(name, row, opset)
