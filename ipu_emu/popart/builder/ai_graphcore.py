"""aiGraphcore: the methods of ``builder.aiGraphcore``, as in ai_onnx (PopART 3.4, ``aigraphcoreopset1``)."""

from __future__ import annotations

from ipu_emu.popart.builder.ai_onnx import Row

__all__ = ["AI_GRAPHCORE"]


def _row(type: str, parameters: str = "") -> Row:
    return type, {1: parameters}


_DYNAMIC = "axes sizes noOverlap=0"
_MULTI = (
    "dilations=[] inDilations=[] pads=[] outPads=[] strides=[] availableMemoryProportions=[] partialsTypes=[] "
    "planType=null perConvReservedTiles=null cycleBackOff=null enableConvDithering=[]"
)
_PRINT = (
    'print_gradient=1 debugContext="" title="" summariseThreshold=1000 edgeItems=3 maxLineWidth=75 digits=8 '
    'floatFormat=0 separator=null openBracket="[" closeBracket="]"'
)
_COLLECTIVE = "collectiveOperator=null commGroup=null"

AI_GRAPHCORE: dict[str, Row] = {
    "abort": _row("Abort"),
    "atan2": _row("Atan2"),
    "batchnormalization": _row("BatchNormalization", "num_outputs epsilon=1e-05 momentum=0.9"),
    "bitwiseand": _row("BitwiseAnd"),
    "bitwisenot": _row("BitwiseNot"),
    "bitwiseor": _row("BitwiseOr"),
    "bitwisexnor": _row("BitwiseXnor"),
    "bitwisexor": _row("BitwiseXor"),
    "bucketize": _row("Bucketize", "right=0"),
    "call": _row("Call", "num_outputs callee"),
    "copyvarupdate": _row("CopyVarUpdate"),
    "ctcbeamsearchdecoder": _row("CtcBeamSearchDecoder", "blank=0 beam_width=100 top_paths=1"),
    "ctcloss": _row("Ctc", 'reduction="Mean" blank=0 outDataType="UNDEFINED" zeroInfinity=false'),
    "depthtospace": _row("DepthToSpace", 'blocksize mode="DCR"'),
    "detach": _row("Detach"),
    "dynamicadd": _row("DynamicAdd", "axes sizes"),
    "dynamicslice": _row("DynamicSlice", _DYNAMIC),
    "dynamicupdate": _row("DynamicUpdate", _DYNAMIC),
    "dynamiczero": _row("DynamicZero", "axes sizes"),
    "expm1": _row("Expm1"),
    "fmod": _row("Fmod"),
    "gelu": _row("Gelu"),
    "geluerf": _row("GeluErf"),
    "groupedgather": _row("GroupedGather", "axis=0 group_size=1"),
    "groupedscatterreduce": _row(
        "ScatterReduce", 'axis_size axis=-1 reduction="sum" group_size=1 enable_index_broadcast=1'
    ),
    "groupnormalization": _row("GroupNormalization", "num_groups epsilon=1e-05"),
    "identityloss": _row("IdentityLoss", 'reduction="Mean"'),
    "incrementmod": _row("IncrementMod", "increment modulus"),
    "init": _row("Init", "shape data_type init_type batch_axis=null"),
    "l1loss": _row("L1", 'lambda reduction="Mean"'),
    "log1p": _row("Log1p"),
    "lstm": _row("LSTM", "outputFullSequence=1"),
    "multiconv": _row("MultiConv", _MULTI),
    "nearbyint": _row("NearbyInt"),
    "nllloss": _row("Nll", 'reduction="Mean" ignoreIndex=null inputIsLogProbability=false'),
    "nop": _row("Nop"),
    "normalize_image": _row("NormalizeImage", "scale=1.0"),
    "packedDataBlock": _row("PackedDataBlock", "maxSequenceLengths resultSize callbackBatchSize callback"),
    "printtensor": _row("PrintTensor", _PRINT),
    "reducemedian": _row("ReduceMedian", "axes=null keepdims=1"),
    "remainder": _row("Remainder"),
    "replicatedallreduce": _row("ReplicatedAllReduce", _COLLECTIVE),
    "replicatedreducescatter": _row("ReplicatedReduceScatter", _COLLECTIVE),
    "reshape": _row("Reshape", "shape"),
    "reverse": _row("Reverse", "dimensions"),
    "round": _row("Round"),
    "scale": _row("Scale", "scale"),
    "scaledadd": _row("ScaledAdd", "scale0=1.0 scale1=1.0"),
    "scatterreduce": _row("ScatterReduce", 'axis_size axis=-1 reduction="sum" enable_index_broadcast=1'),
    "sequenceslice": _row("SequenceSlice", "zeroUnused=false"),
    "shapeddropout": _row("ShapedDropout", "shape ratio=0.5"),
    "slice": _row("Slice", "ends starts axes=[]"),
    "sort": _row("Sort", "axis=-1 descending=0 stable=0"),
    "splinebasis": _row("SplineBasis", "degree=1"),
    "splineweighting": _row("SplineWeighting"),
    "subsample": _row("Subsample", "strides"),
    "swish": _row("Swish"),
    "tensorremap": _row("TensorRemap", "remap_type=0"),
}
