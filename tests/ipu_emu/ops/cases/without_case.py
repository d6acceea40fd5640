"""Ops without a case of their own, and why: no gradient, or another test."""

from __future__ import annotations

__all__ = ["NO_GRADIENT", "PARTS_OF_OTHERS", "TESTED_ELSEWHERE"]

#: Ops through which no gradient passes, by reason.
NO_GRADIENT = {
    "it is a gradient itself, compared as that of its op": """
        BatchNormGrad BatchNormSharedGrad BatchNormSlopes
        ConvWeightGrad CtcLossGrad DetGrad DropoutGrad ReluGrad EluGrad SeluGrad CeluGrad MishGrad
        GeluGrad SoftplusGrad SoftsignGrad LeakyReluGrad HardSigmoidGrad HardSwishGrad ThresholdedReluGrad
        ShrinkGrad SwishGrad GraphcoreSwishGrad GraphcoreGeluGrad GraphcoreGeluErfGrad GroupNormGrad
        NearestAlongGrad
        GroupedGatherGrad TakeIndexed ClearIndexed CumSumAlong GatherGrad L1Grad NllGrad SoftmaxNllGrad OneHotGrad
        ReduceMedianGrad PadGrad MaxPoolGrad AveragePoolGrad RecurrenceGrad RoiAlignGrad MaxRoiPoolGrad
        SequenceSliceGrad SoftmaxGrad LogSoftmaxGrad MaxUnpoolGrad ElementsInto SlicesInto OthersProduct
        ClipBetweenGrad""",
    "it gives its gradient itself": "SparseSoftmaxCrossEntropy SoftmaxCrossEntropy",
    "it is for inference, and has no gradient in PopART": "CtcBeamSearchDecoder SplineBasis SplineWeighting",
    "its results are steps, whose slope is 0": """
        Equal Greater GreaterOrEqual Less LessOrEqual ArgMax ArgMin Hardmax
        Bucketize MaxPoolPlaces IsNaN IsInf QuantizeLinear DynamicQuantizeLinear""",
    "its operands are integers or truth values": """
        And Or Xor Not BitwiseAnd BitwiseOr BitwiseXor BitwiseXnor BitwiseNot BitShift IncrementMod
        DequantizeLinear MatMulInteger QLinearMatMul ConvInteger QLinearConv TfIdfVectorizer""",
    "it reads no values": "Constant ConstantOfShape Shape Size Range EyeLike Init",
    "it needs constants": "NonZero Compress Unique NonMaxSuppression",
    "it draws numbers": """
        RandomNormal RandomUniform RandomNormalLike RandomUniformLike RandomNormals RandomUniforms Bernoulli
        Multinomial DrawnClasses RoundStochastically RoundStochasticallyInto""",
    "it changes variables or their gradients after the backward pass": """
        AdamUpdate LambDirection LambStep AdaptiveUpdate SgdPlain SgdSeparate SgdCombined RunningMean CopyInto
        CopyVarUpdate AddInto MeanInto AddRounded MeanRounded GradientNorm ClipFactor ClipGradient
        FusedUpdate CountLargeGradients UndoLossScale ChangeLossScale ChangeLossScaleAtTimes""",
    "it moves data between replicas and IPUs, and has no gradient in PopART or is put in later": """
        ReplicatedAllReduce ReplicatedReduceScatter TakeShard ReduceScatterGradient AllGatherWeight
        AllGatherShards IpuCopy RemoteLoad RemoteStore RemoteUpdate""",
    "it is there to stop gradients": "Detach",
    "it ends the program": "Abort",
    "it is on sequences or texts, which no device has": """
        ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength
        SplitToSequence StringNormalizer""",
    "it prints, or shows the stash of a pipeline": "PrintedGradient PutIntoStash",
    "it is made of ops that have been differentiated": "Fused",
    "it stands for a gradient that nobody may need": "WhileGrad",
    "it is rare and newer than PopART: it only serves inference": "CumProd",
}

#: Ops with a gradient that cases of other ops cover: part of their gradients, or of their expansion.
PARTS_OF_OTHERS = """
    ReshapeTo SumTo SpreadTo SliceInto Reversed ConvDataGrad Recurrence DynamicSliceLocal DynamicUpdateLocal
    NearestAlong DynamicAddLocal DynamicZeroLocal PowerByProducts ClipBetween MatMulT"""

#: Ops with a gradient that another test compares, by its file in tests/ipu_emu.
TESTED_ELSEWHERE = {
    "popart/session/test_gradient_anchors.py": "Sign Floor Ceil Round NearbyInt",
    "poptorch/test_edges.py": "Erfc Log2 Log10",
    "ops/normalisation/test_batch_norm.py": """
        BatchNormTrain BatchNormInfer BatchNormMoments BatchNormShared ReplicatedMean""",
    "ops/random/test_dropout_ops.py": "Dropout DropoutWithKey",
    "ops/test_resize.py": "ResizedLinearly",
    "ops/test_control.py": "Call If Loop Scan",
    "ops/control/test_loop_and_while.py": "While",
    "ops/control/test_packed_data_block.py": "PackedDataBlock",
    "ops/test_onnx_cases.py": "GridSample",
}
