"""Prefix functions: the reserved prefixes of tensor ids, each as a function."""

from __future__ import annotations

from collections.abc import Callable

from ipu_emu.compiler.rewriting import reserved_prefixes as prefixes

__all__ = [
    "reservedAccl1Prefix", "reservedAccl2Prefix", "reservedAccl3Prefix", "reservedAcclFinalOutPrefix",
    "reservedAcclPrefix", "reservedAcclToReducePrefix", "reservedAcclToUpdatePrefix", "reservedAccumPrefix",
    "reservedAdamUpdaterPrefix", "reservedAutomaticLossScalePrefix", "reservedCounterPrefix",
    "reservedDefaultAdamBeta1Prefix", "reservedDefaultAdamBeta2Prefix", "reservedDefaultAdamEpsPrefix",
    "reservedDefaultDampeningScaleFactor1Prefix", "reservedDefaultLearningRatePrefix",
    "reservedDefaultLossScalingPrefix", "reservedDefaultMaxWeightNormPrefix",
    "reservedDefaultScaledLearningRate0Prefix", "reservedDefaultScaledLearningRate1Prefix",
    "reservedDefaultScaledMomentum1Prefix", "reservedDefaultScaledWeightDecay1Prefix", "reservedDefaultStepPrefix",
    "reservedDefaultWeightDecayPrefix", "reservedDefaultWeightDecayScaleFactor0Prefix",
    "reservedFinalReducedGradPrefix", "reservedGradientPrefix", "reservedLambR1SqPrefix", "reservedLambR2SqPrefix",
    "reservedLossScalingPrefix", "reservedRandomSeedPrefix", "reservedRemoteArgPrefix", "reservedRestoredPrefix",
    "reservedSeedModifierPrefix", "reservedSpecificAdamBeta1Prefix", "reservedSpecificAdamBeta2Prefix",
    "reservedSpecificAdamEpsPrefix", "reservedSpecificDampeningScaleFactor1Prefix",
    "reservedSpecificLearningRatePrefix", "reservedSpecificLossScalingPrefix", "reservedSpecificMaxWeightNormPrefix",
    "reservedSpecificScaledLearningRate0Prefix", "reservedSpecificScaledLearningRate1Prefix",
    "reservedSpecificScaledMomentum1Prefix", "reservedSpecificScaledWeightDecay1Prefix", "reservedSpecificStepPrefix",
    "reservedSpecificWeightDecayPrefix", "reservedSpecificWeightDecayScaleFactor0Prefix", "reservedStashedPrefix",
    "reservedStepPrefix", "reservedUpdatedVarPrefix",
]  # fmt: skip


def _prefix(value: str, of: str) -> Callable[[], str]:
    def prefix() -> str:
        return value

    prefix.__doc__ = f"Prefix of the id of {of}."
    return prefix


def _scopes(value: str) -> tuple[Callable[[], str], Callable[[], str]]:
    default = _prefix(f"{value}___default___", f"the {value} of all weights without their own")
    return default, _prefix(f"{value}___specific___", f"the {value} of one weight")


reservedGradientPrefix = _prefix(prefixes.GRADIENT, "a gradient")
reservedAccumPrefix = _prefix(prefixes.ACCUM, "an accumulated gradient")
reservedAcclPrefix = _prefix(prefixes.ACCL, "a momentum")
reservedAccl1Prefix = _prefix(prefixes.ACCL1, "an optimiser's first moment")
reservedAccl2Prefix = _prefix(prefixes.ACCL2, "an optimiser's second moment")
reservedAccl3Prefix = _prefix(prefixes.ACCL3, "an optimiser's third state")
reservedStepPrefix = _prefix(prefixes.STEP, "an optimiser's step counter")
reservedCounterPrefix = _prefix(prefixes.COUNTER, "a counter of micro-batches")
reservedRestoredPrefix = _prefix(prefixes.RESTORED, "an activation taken from a stash")
reservedStashedPrefix = _prefix(prefixes.STASHED, "a stash")
reservedUpdatedVarPrefix = _prefix(prefixes.UPDATED, "an updated weight")
reservedRandomSeedPrefix = _prefix(prefixes.RANDOM_SEED, "the random seed")
reservedAcclToReducePrefix = _prefix("AcclIntoReduce___", "a momentum that is to be reduced")
reservedAcclToUpdatePrefix = _prefix("AcclIntoUpdate___", "a momentum that is to be updated")
reservedAcclFinalOutPrefix = _prefix("AcclOutOfAcclUpdate___", "an updated momentum")
reservedFinalReducedGradPrefix = _prefix("FinalReducedGradient___", "a reduced gradient")
reservedAdamUpdaterPrefix = _prefix("AdamUpdater___", "the change of a weight")
reservedLambR1SqPrefix = _prefix("LambR1Sq___", "the squared norm of a weight")
reservedLambR2SqPrefix = _prefix("LambR2Sq___", "the squared norm of its change")
reservedRemoteArgPrefix = _prefix("RemoteArg___", "an address in Streaming Memory")
reservedLossScalingPrefix = _prefix("lossScaling_", "the loss scaling")
reservedAutomaticLossScalePrefix = _prefix("AutomaticLossScaleProxy___", "a tracked tensor of automatic loss scaling")
reservedSeedModifierPrefix = _prefix("randomSeedModifier___", "the modifier of the random seed")

reservedDefaultWeightDecayScaleFactor0Prefix, reservedSpecificWeightDecayScaleFactor0Prefix = _scopes(
    "weightDecayScaleFactor0"
)
reservedDefaultScaledLearningRate0Prefix, reservedSpecificScaledLearningRate0Prefix = _scopes("scaledLearningRate0")
reservedDefaultScaledLearningRate1Prefix, reservedSpecificScaledLearningRate1Prefix = _scopes("scaledLearningRate1")
reservedDefaultScaledWeightDecay1Prefix, reservedSpecificScaledWeightDecay1Prefix = _scopes("scaledWeightDecay1")
reservedDefaultDampeningScaleFactor1Prefix, reservedSpecificDampeningScaleFactor1Prefix = _scopes(
    "dampeningScaleFactor1"
)
reservedDefaultScaledMomentum1Prefix, reservedSpecificScaledMomentum1Prefix = _scopes("scaledMomentum1")
reservedDefaultLearningRatePrefix, reservedSpecificLearningRatePrefix = _scopes("learningRate")
reservedDefaultWeightDecayPrefix, reservedSpecificWeightDecayPrefix = _scopes("weightDecay")
reservedDefaultLossScalingPrefix, reservedSpecificLossScalingPrefix = _scopes("lossScaling")
reservedDefaultMaxWeightNormPrefix, reservedSpecificMaxWeightNormPrefix = _scopes("maxWeightNorm")
reservedDefaultAdamBeta1Prefix, reservedSpecificAdamBeta1Prefix = _scopes("adamBeta1")
reservedDefaultAdamBeta2Prefix, reservedSpecificAdamBeta2Prefix = _scopes("adamBeta2")
reservedDefaultAdamEpsPrefix, reservedSpecificAdamEpsPrefix = _scopes("adamEps")
reservedDefaultStepPrefix, reservedSpecificStepPrefix = _scopes("step")
