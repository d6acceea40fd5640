"""aiOnnx: the methods of ``builder.aiOnnx``; a row is (name, ONNX type, {first opset: parameters}).

Parameters follow ``args``; ``debugContext`` comes last. Ops that ONNX has removed (scatter, upsample) stay in the
later opset classes, as in PopART. Source: PopART 3.4, the generated opset classes; required attributes first, then
optional ones, both in alphabetical order.
"""

from __future__ import annotations

__all__ = ["AI_ONNX", "Row"]

Row = tuple[str, dict[int, str]]

_NONE: dict[int, str] = {6: ""}
_SINCE_7: dict[int, str] = {7: ""}
_SINCE_8: dict[int, str] = {8: ""}
_SINCE_9: dict[int, str] = {9: ""}
_SINCE_10: dict[int, str] = {10: ""}
_SINCE_11: dict[int, str] = {11: ""}
_LEGACY_BROADCAST: dict[int, str] = {6: "axis=null broadcast=0", 7: ""}
_REDUCE: dict[int, str] = {6: "axes=null keepdims=1"}
_RECURRENT = 'num_outputs activation_alpha=[] activation_beta=[] {} clip=null direction="forward" hidden_size=null'
_RESIZE = (
    'coordinate_transformation_mode="half_pixel" cubic_coeff_a=-0.75 exclude_outside=0 extrapolation_value=0.0 '
    'mode="nearest" nearest_mode="round_prefer_floor"'
)
_GRAMS = (
    "max_gram_length max_skip_count min_gram_length mode ngram_counts ngram_indexes pool_int64s=[] pool_strings=[] "
    "weights=[]"
)
_SCAN = (
    "num_outputs body num_scan_inputs scan_input_axes=[] scan_input_directions=[] scan_output_axes=[] "
    "scan_output_directions=[]"
)

AI_ONNX: dict[str, Row] = {
    "abs": ("Abs", _NONE),
    "acos": ("Acos", _SINCE_7),
    "acosh": ("Acosh", _SINCE_9),
    "add": ("Add", _LEGACY_BROADCAST),
    "logical_and": ("And", _LEGACY_BROADCAST),
    "argmax": ("ArgMax", {6: "axis=0 keepdims=1"}),
    "argmin": ("ArgMin", {6: "axis=0 keepdims=1"}),
    "asin": ("Asin", _SINCE_7),
    "asinh": ("Asinh", _SINCE_9),
    "atan": ("Atan", _SINCE_7),
    "atanh": ("Atanh", _SINCE_9),
    "averagepool": (
        "AveragePool",
        {
            6: "kernel_shape pads=[] strides=[]",
            7: "kernel_shape count_include_pad=0 pads=[] strides=[]",
            10: "kernel_shape ceil_mode=0 count_include_pad=0 pads=[] strides=[]",
        },
    ),
    "batchnormalization": (
        "BatchNormalization",
        {
            6: "num_outputs epsilon=1e-05 is_test=0 momentum=0.9 spatial=1",
            7: "num_outputs epsilon=1e-05 momentum=0.9 spatial=1",
            9: "num_outputs epsilon=1e-05 momentum=0.9",
        },
    ),
    "bitshift": ("BitShift", {11: "direction"}),
    "cast": ("Cast", {6: "to"}),
    "ceil": ("Ceil", _NONE),
    "clip": ("Clip", {6: "max=3.4028234663852886e+38 min=-3.4028234663852886e+38", 11: ""}),
    "compress": ("Compress", {9: "axis=null"}),
    "concat": ("Concat", {6: "axis"}),
    "concatfromsequence": ("ConcatFromSequence", {11: "axis new_axis=0"}),
    "constant": ("Constant", {6: "value", 11: "value is_value_sparse=false"}),
    "constantofshape": ("ConstantOfShape", {9: "value=null"}),
    "conv": ("Conv", {6: "dilations=[] group=1 kernel_shape=[] pads=[] strides=[]"}),
    "convinteger": ("ConvInteger", {10: "dilations=[] group=1 kernel_shape=[] pads=[] strides=[]"}),
    "convtranspose": (
        "ConvTranspose",
        {6: "dilations=[] group=1 kernel_shape=[] output_padding=[] output_shape=[] pads=[] strides=[]"},
    ),
    "cos": ("Cos", _SINCE_7),
    "cosh": ("Cosh", _SINCE_9),
    "cumsum": ("CumSum", {11: "exclusive=0 reverse=0"}),
    "depthtospace": ("DepthToSpace", {6: "blocksize", 11: 'blocksize mode="DCR"'}),
    "dequantizelinear": ("DequantizeLinear", _SINCE_10),
    "det": ("Det", _SINCE_11),
    "div": ("Div", _LEGACY_BROADCAST),
    "dropout": ("Dropout", {6: "num_outputs is_test=0 ratio=0.5", 7: "num_outputs ratio=0.5"}),
    "dynamicquantizelinear": ("DynamicQuantizeLinear", _SINCE_11),
    "elu": ("Elu", {6: "alpha=1.0"}),
    "equal": ("Equal", _LEGACY_BROADCAST),
    "erf": ("Erf", _SINCE_9),
    "exp": ("Exp", _NONE),
    "expand": ("Expand", _SINCE_8),
    "eyelike": ("EyeLike", {9: "dtype=null k=0"}),
    "flatten": ("Flatten", {6: "axis=1"}),
    "floor": ("Floor", _NONE),
    "gru": (
        "GRU",
        {
            6: _RECURRENT.format("activations=[]") + " linear_before_reset=0 output_sequence=0",
            7: _RECURRENT.format("activations=[]") + " linear_before_reset=0",
        },
    ),
    "gather": ("Gather", {6: "axis=0"}),
    "gatherelements": ("GatherElements", {11: "axis=0"}),
    "gathernd": ("GatherND", _SINCE_11),
    "gemm": (
        "Gemm",
        {6: "alpha=1.0 beta=1.0 broadcast=0 transA=0 transB=0", 7: "alpha=1.0 beta=1.0 transA=0 transB=0"},
    ),
    "globalaveragepool": ("GlobalAveragePool", _NONE),
    "globallppool": ("GlobalLpPool", {6: "p=2"}),
    "globalmaxpool": ("GlobalMaxPool", _NONE),
    "greater": ("Greater", _LEGACY_BROADCAST),
    "hardsigmoid": ("HardSigmoid", {6: "alpha=0.2 beta=0.5"}),
    "hardmax": ("Hardmax", {6: "axis=1"}),
    "identity": ("Identity", _NONE),
    "logical_if": ("If", {6: "num_outputs else_branch then_branch"}),
    "instancenormalization": ("InstanceNormalization", {6: "epsilon=1e-05"}),
    "isinf": ("IsInf", {10: "detect_negative=1 detect_positive=1"}),
    "isnan": ("IsNaN", _SINCE_9),
    "lrn": ("LRN", {6: "size alpha=0.0001 beta=0.75 bias=1.0"}),
    "lstm": (
        "LSTM",
        {
            6: _RECURRENT.format("activations=[]") + " input_forget=0 output_sequence=0",
            7: _RECURRENT.format("activations=[]") + " input_forget=0",
        },
    ),
    "leakyrelu": ("LeakyRelu", {6: "alpha=0.01"}),
    "less": ("Less", _LEGACY_BROADCAST),
    "log": ("Log", _NONE),
    "logsoftmax": ("LogSoftmax", {6: "axis=1"}),
    "loop": ("Loop", {6: "num_outputs body"}),
    "lpnormalization": ("LpNormalization", {6: "axis=-1 p=2"}),
    "lppool": ("LpPool", {6: "kernel_shape p=2 pads=[] strides=[]"}),
    "matmul": ("MatMul", _NONE),
    "matmulinteger": ("MatMulInteger", _SINCE_10),
    "max": ("Max", _NONE),
    "maxpool": (
        "MaxPool",
        {
            6: "kernel_shape pads=[] strides=[]",
            8: "num_outputs kernel_shape pads=[] storage_order=0 strides=[]",
            10: "num_outputs kernel_shape ceil_mode=0 dilations=[] pads=[] storage_order=0 strides=[]",
        },
    ),
    "maxroipool": ("MaxRoiPool", {6: "pooled_shape spatial_scale=1.0"}),
    "maxunpool": ("MaxUnpool", {9: "kernel_shape pads=[] strides=[]"}),
    "mean": ("Mean", _NONE),
    "meanvariancenormalization": ("MeanVarianceNormalization", {9: "axes=[0,2,3]"}),
    "min": ("Min", _NONE),
    "mod": ("Mod", {10: "fmod=0"}),
    "mul": ("Mul", _LEGACY_BROADCAST),
    "multinomial": ("Multinomial", {7: "dtype=6 sample_size=1 seed=null"}),
    "neg": ("Neg", _NONE),
    "nonmaxsuppression": ("NonMaxSuppression", {10: "center_point_box=0"}),
    "nonzero": ("NonZero", _SINCE_9),
    "logical_not": ("Not", _NONE),
    "onehot": ("OneHot", {9: "axis=-1"}),
    "logical_or": ("Or", _LEGACY_BROADCAST),
    "prelu": ("PRelu", _NONE),
    "pad": ("Pad", {6: 'pads mode="constant" value=0.0', 11: 'mode="constant"'}),
    "pow": ("Pow", _LEGACY_BROADCAST),
    "qlinearconv": ("QLinearConv", {10: "dilations=[] group=1 kernel_shape=[] pads=[] strides=[]"}),
    "qlinearmatmul": ("QLinearMatMul", _SINCE_10),
    "quantizelinear": ("QuantizeLinear", _SINCE_10),
    "rnn": (
        "RNN",
        {
            6: _RECURRENT.format("activations=[]") + " output_sequence=0",
            7: _RECURRENT.format("activations=[]"),
        },
    ),
    "randomnormal": ("RandomNormal", {6: "shape dtype=1 mean=0.0 scale=1.0 seed=null"}),
    "randomnormallike": ("RandomNormalLike", {6: "dtype=null mean=0.0 scale=1.0 seed=null"}),
    "randomuniform": ("RandomUniform", {6: "shape dtype=1 high=1.0 low=0.0 seed=null"}),
    "randomuniformlike": ("RandomUniformLike", {6: "dtype=null high=1.0 low=0.0 seed=null"}),
    "range": ("Range", _SINCE_11),
    "reciprocal": ("Reciprocal", _NONE),
    "reducel1": ("ReduceL1", _REDUCE),
    "reducel2": ("ReduceL2", _REDUCE),
    "reducelogsum": ("ReduceLogSum", _REDUCE),
    "reducelogsumexp": ("ReduceLogSumExp", _REDUCE),
    "reducemax": ("ReduceMax", _REDUCE),
    "reducemean": ("ReduceMean", _REDUCE),
    "reducemin": ("ReduceMin", _REDUCE),
    "reduceprod": ("ReduceProd", _REDUCE),
    "reducesum": ("ReduceSum", _REDUCE),
    "reducesumsquare": ("ReduceSumSquare", _REDUCE),
    "relu": ("Relu", _NONE),
    "reshape": ("Reshape", _NONE),
    "resize": ("Resize", {10: 'mode="nearest"', 11: _RESIZE}),
    "reversesequence": ("ReverseSequence", {10: "batch_axis=1 time_axis=0"}),
    "roialign": ("RoiAlign", {10: 'mode="avg" output_height=1 output_width=1 sampling_ratio=0 spatial_scale=1.0'}),
    "round": ("Round", _SINCE_11),
    "scan": ("Scan", {8: "num_outputs body num_scan_inputs directions=[]", 9: _SCAN}),
    "scatter": ("Scatter", {9: "axis=0"}),
    "scatterelements": ("ScatterElements", {11: "axis=0"}),
    "scatternd": ("ScatterND", _SINCE_11),
    "selu": ("Selu", {6: "alpha=1.6732632 gamma=1.050701"}),
    "sequenceat": ("SequenceAt", _SINCE_11),
    "sequenceconstruct": ("SequenceConstruct", _SINCE_11),
    "sequenceempty": ("SequenceEmpty", {11: "dtype=null"}),
    "sequenceerase": ("SequenceErase", _SINCE_11),
    "sequenceinsert": ("SequenceInsert", _SINCE_11),
    "sequencelength": ("SequenceLength", _SINCE_11),
    "shape": ("Shape", _NONE),
    "shrink": ("Shrink", {9: "bias=0.0 lambd=0.5"}),
    "sigmoid": ("Sigmoid", _NONE),
    "sign": ("Sign", _SINCE_9),
    "sin": ("Sin", _SINCE_7),
    "sinh": ("Sinh", _SINCE_9),
    "size": ("Size", _NONE),
    "slice": ("Slice", {6: "ends starts axes=[]", 10: ""}),
    "softmax": ("Softmax", {6: "axis=1"}),
    "softplus": ("Softplus", _NONE),
    "softsign": ("Softsign", _NONE),
    "spacetodepth": ("SpaceToDepth", {6: "blocksize"}),
    "split": ("Split", {6: "num_outputs axis=0 split=[]"}),
    "splittosequence": ("SplitToSequence", {11: "axis=0 keepdims=1"}),
    "sqrt": ("Sqrt", _NONE),
    "squeeze": ("Squeeze", {6: "axes=[]"}),
    "stringnormalizer": (
        "StringNormalizer",
        {10: 'case_change_action="NONE" is_case_sensitive=0 locale=null stopwords=[]'},
    ),
    "sub": ("Sub", _LEGACY_BROADCAST),
    "sum": ("Sum", _NONE),
    "tan": ("Tan", _SINCE_7),
    "tanh": ("Tanh", _NONE),
    "tfidfvectorizer": ("TfIdfVectorizer", {9: _GRAMS}),
    "thresholdedrelu": ("ThresholdedRelu", {10: "alpha=1.0"}),
    "tile": ("Tile", _NONE),
    "topk": ("TopK", {6: "k axis=-1", 10: "axis=-1", 11: "axis=-1 largest=1 sorted=1"}),
    "transpose": ("Transpose", {6: "perm=[]"}),
    "unique": ("Unique", {11: "num_outputs axis=null sorted=1"}),
    "unsqueeze": ("Unsqueeze", {6: "axes"}),
    "upsample": (
        "Upsample",
        {
            6: 'height_scale width_scale mode="nearest"',
            7: 'scales mode="nearest"',
            9: 'mode="nearest"',
        },
    ),
    "where": ("Where", _SINCE_9),
    "logical_xor": ("Xor", _LEGACY_BROADCAST),
}
