"""Patterns: those of PopART; they never change results beyond rounding, but mandatory ones must be enabled."""

from __future__ import annotations

from collections.abc import Sequence

from ipu_emu.errors import EmulatorError
from ipu_emu.session.options.option_enums import PatternsLevel
from popdist_py.messages.suggestion import did_you_mean

#: Any input.
ANY = -1
#: Mandatory patterns, which replace ops that a device cannot run: (the replaced op, an op of the model, the input of
#: that op whose gradient the replaced op computes). Without an input the op of the model is itself replaced.
MANDATORY: dict[str, tuple[str, str, int | None]] = {
    "Atan2Arg0GradOp": ("Atan2Arg0Grad", "Atan2", 0),
    "Atan2Arg1GradOp": ("Atan2Arg1Grad", "Atan2", 1),
    "ConvDataGrad": ("ConvDataGrad", "Conv", 0),
    "ConvFlipWeightsGradOp": ("ConvFlipWeightsGrad", "ConvFlipWeights", 0),
    "ConvTranspose": ("ConvTranspose", "ConvTranspose", None),
    "CosGradOp": ("CosGrad", "Cos", 0),
    "CoshOp": ("Cosh", "Cosh", None),
    "DivArg0GradOp": ("DivArg0Grad", "Div", 0),
    "DivArg1GradOp": ("DivArg1Grad", "Div", 1),
    "ExpGradOp": ("ExpGrad", "Exp", 0),
    "Expm1GradOp": ("Expm1Grad", "Expm1", 0),
    "FmodArg0GradOp": ("FmodArg0Grad", "Fmod", 0),
    "Log1pGradOp": ("Log1pGrad", "Log1p", 0),
    "LogGradOp": ("LogGrad", "Log", 0),
    "MatMulLhsGradOp": ("MatMulLhsGrad", "MatMul", 0),
    "MatMulOp": ("MatMul", "MatMul", None),
    "MatMulRhsGradOp": ("MatMulRhsGrad", "MatMul", 1),
    "MulArgGradOp": ("MulArg0Grad", "Mul", ANY),
    "PowArg0GradOp": ("PowArg0Grad", "Pow", 0),
    "PowArg1GradOp": ("PowArg1Grad", "Pow", 1),
    "ReciprocalGradOp": ("ReciprocalGrad", "Reciprocal", 0),
    "SqrtGradOp": ("SqrtGrad", "Sqrt", 0),
    "SubtractArg1GradOp": ("SubtractArg1Grad", "Sub", 1),
}
#: Patterns that are off by default.
_OFF = frozenset({"LSTMOp", "Slice2SliceSubsample", "SplitGather", "TiedGather", "TiedGatherAccumulate"})
_OPTIONAL = frozenset({
    "AccumulatePriorityPattern", "AllReduceToIdentity", "AllReduceToIdentityPattern", "BinaryConstScalar",
    "ContiguateIpuCopyIndices", "ContiguateIpuCopyIndicesPattern", "ConvFlipWeightsDoubleFlip",
    "ConvFlipWeightsDoubleFlipPattern", "CoshOp", "DecomposeBinaryConstScalar", "ElementWiseGradOp", "ExpandCast",
    "FuseConstantOp", "GemmDecomposition", "InPlace", "InitAccumulate", "InitAccumulatePattern",
    "LambSerialisedWeight", "LambSerialisedWeightPattern", "LikelihoodConv", "LoopScanOutPattern", "MulArgGradOp",
    "NegativeOneScale", "NlllWithSoftmaxGradDirect", "OpToIdentity", "OptimiserDecompose", "PadSum",
    "PackedDataBlock", "PostNRepl", "PowToSqrt", "PreUniRepl", "RemoveUnnecessaryLossGradCast",
    "RemoveAllReducePattern", "RemoveUnnecessaryLossGradCastPattern", "ScanToLoop", "SGD0Decompose", "SGD1Decompose",
    "SGD2Decompose", "AdamDecompose", "AdaptiveDecompose", "SoftmaxGradDirect", "SparseAccumulatePattern",
    "SplitGradOpToConcat", "SplitOp", "SumToAdd", "TransposeToIdentityOrReshape",
    "TransposeToIdentityOrReshapePattern", "UpdateInplacePrioritiesForIpu", "UpsampleToResize", "ViewSimplify",
    "ViewSimplifyPattern", "ConstExprReduction", "MaxArgGradOp", "MinArgGradOp", "SinGradOp", "SinhGradOp",
    "TanhGradOp", "AcosGradOp", "AsinGradOp", "AtanGradOp", "AbsGradOp", "AddArg0GradOp", "AddArg1GradOp",
    "RandomNormalLikeOpPattern", "RandomUniformLikeOpPattern", "ZerosLikeOpPattern", "TanToSinOverCos",
    "SplitConvBias", "LogSoftmaxOp", "SequenceExpander", "SubtractArg0GradOp", "SoftPlusGradOp", "ConstSoftMaxGrad",
    "SoftMaxGradDirect",
})  # fmt: skip
_KNOWN = _OPTIONAL | _OFF | frozenset(MANDATORY)
#: Levels at which optional patterns are off.
_WITHOUT_OPTIONAL = (PatternsLevel.Minimal, PatternsLevel.NoPatterns)


class Patterns:
    """``Patterns(PatternsLevel)`` or ``Patterns([names])``; patterns by name, also as attributes such as ``InPlace``.

    With a list of names those are on and all others off.
    """

    level: PatternsLevel
    enabled: dict[str, bool]
    runtime_asserts: bool

    def __init__(self, patterns: PatternsLevel | Sequence[str] = PatternsLevel.Default) -> None:
        level = patterns if isinstance(patterns, PatternsLevel) else PatternsLevel.NoPatterns
        names = () if isinstance(patterns, PatternsLevel) else patterns
        for name in names:
            _check_known(name)
        self.__dict__.update(level=level, enabled=dict.fromkeys(names, True), runtime_asserts=True)

    @classmethod
    def create(cls, patterns: Sequence[str]) -> Patterns:
        """Patterns with the named ones enabled."""
        return cls(patterns)

    def __getattr__(self, name: str) -> bool:
        _check_name(name)
        return self.isPatternEnabled(name)

    def __setattr__(self, name: str, enable: bool) -> None:
        _check_name(name)
        self.enablePattern(name, enable)

    def enablePattern(self, name: str, enable: bool) -> Patterns:
        """Enable or disable a pattern by name; a mandatory one can only be disabled without runtime asserts."""
        _check_known(name)
        if not enable and name in MANDATORY and self.runtime_asserts:
            raise EmulatorError(f"Pattern '{name}' is mandatory and cannot be disabled")
        self.enabled[name] = bool(enable)
        return self

    def isPatternEnabled(self, name: str) -> bool:
        """Whether a pattern is enabled."""
        _check_known(name)
        if self.level is PatternsLevel.NoPatterns:
            return self.enabled.get(name, False)
        usual = name in MANDATORY or (self.level not in _WITHOUT_OPTIONAL and name not in _OFF)
        return self.enabled.get(name, usual or self.level is PatternsLevel.All)

    def enableRuntimeAsserts(self, enable: bool) -> Patterns:
        """Whether disabled mandatory patterns are an error, or only the ops that they would have replaced."""
        self.__dict__["runtime_asserts"] = bool(enable)
        return self

    def check_mandatory(self) -> None:
        """Raise EmulatorError if a mandatory pattern is disabled, unless this check is off."""
        for name in MANDATORY if self.runtime_asserts else ():
            if not self.isPatternEnabled(name):
                raise EmulatorError(f"Pattern '{name}' must be enabled")

    def missing(self) -> list[str]:
        """The disabled mandatory patterns."""
        return [name for name in MANDATORY if not self.isPatternEnabled(name)]

    def __repr__(self) -> str:
        return f"Patterns({self.level.name}, {self.enabled})"


def _check_name(name: str) -> None:
    if not name[:1].isupper():
        raise AttributeError(f"'Patterns' object has no attribute {name!r}; a pattern's name begins with a capital")


def _check_known(name: str) -> None:
    if name not in _KNOWN:
        raise EmulatorError(f"Unknown pattern {name}{did_you_mean(name, sorted(_KNOWN))}")
