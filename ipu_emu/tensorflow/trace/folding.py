"""Folding: ops whose inputs are known are computed when the graph is built.

TensorFlow's own kernels compute integers, and ops that round no number or each once. Its functions, sums and products
have other last bits on other processors, so the rules of the importer compute those, with the emulator's kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import constant_op, dtypes, ops, tensor_util

#: Ops whose results have the same bits on every processor.
_EXACT = frozenset({
    "Abs", "Add", "AddV2", "BatchToSpaceND", "Bitcast", "BroadcastTo", "Cast", "Ceil", "CheckNumerics", "Concat",
    "ConcatV2", "DepthToSpace", "Diag", "DiagPart", "Div", "DivNoNan", "EnsureShape", "ExpandDims", "Fill", "Floor",
    "FloorDiv", "FloorMod", "Gather", "GatherNd", "GatherV2", "Identity", "IdentityN", "MatrixBandPart", "MatrixDiag",
    "MatrixDiagPart", "MatrixDiagPartV3", "MatrixDiagV3", "MatrixSetDiag", "MatrixSetDiagV3", "MirrorPad", "Mod",
    "Mul", "MulNoNan", "Neg", "OneHot", "OnesLike", "Pack", "Pad", "PadV2", "PreventGradient", "RealDiv", "Reshape",
    "ReverseV2", "Rint", "Roll", "Round", "Select", "SelectV2", "Sign", "Slice", "Snapshot", "SpaceToBatchND",
    "SpaceToDepth", "Split", "SplitV", "Square", "SquaredDifference", "Squeeze", "StopGradient", "StridedSlice",
    "Sub", "Tile", "TopKV2", "Transpose", "TruncateDiv", "TruncateMod", "Unpack", "ZerosLike",
})  # fmt: skip
#: Ops whose rules compute DOUBLE in double precision; others leave it to TensorFlow.
_IN_DOUBLE = frozenset({
    "Acos", "Acosh", "AddN", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "BatchMatMul", "BatchMatMulV2",
    "BatchMatMulV3", "Cos", "Cosh", "Cumprod", "Cumsum", "Erf", "Erfc", "Exp", "Expm1", "Inv", "Log", "Log1p",
    "MatMul", "Max", "Maximum", "Mean", "Min", "Minimum", "Pow", "Prod", "Reciprocal", "Rsqrt", "Sigmoid", "Sin",
    "Sinh", "Softplus", "Sqrt", "Sum", "Tan", "Tanh", "Xlog1py", "Xlogy",
})  # fmt: skip


def is_inexact(op: Any) -> bool:
    """Whether TensorFlow's kernel may give other last bits on other processors, and a rule of ours does not."""
    if op.type in _EXACT or op.op_def.is_stateful:
        return False
    kinds = {output.dtype for output in op.outputs}
    return bool(kinds & {dtypes.float16, dtypes.float32}) or (dtypes.float64 in kinds and op.type in _IN_DOUBLE)


def fold(op: Any, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the outputs of a stateless ``op`` for the values of its inputs."""
    if op.type == "Const":
        return [tensor_util.MakeNdarray(op.get_attr("value"))]
    with ops.init_scope(), context.eager_mode(), ops.device("CPU:0"):
        tensors = [constant_op.constant(array) for array in inputs]
        results = execute.execute(
            op.type.encode(), len(op.outputs), inputs=tensors, attrs=attributes_of(op), ctx=context.context()
        )
        return [np.asarray(tensor.numpy()) for tensor in (results if isinstance(results, list) else [results])]


def attributes_of(op: Any) -> tuple[Any, ...]:
    """Return the attributes of ``op`` as eager execution takes them: names and values in turn."""
    attributes: list[Any] = []
    for entry in op.op_def.attr:
        value = op.get_attr(entry.name)
        attributes += [entry.name, _plain(value)]
    return tuple(attributes)


def _plain(value: Any) -> Any:
    if isinstance(value, dtypes.DType):
        return value.as_datatype_enum
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value
