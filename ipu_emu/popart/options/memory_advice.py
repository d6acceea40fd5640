"""Memory advice: how users of session options make a model fit that does not."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ipu_emu.compiler.out_of_memory import ADVICE, RemedyKind

__all__ = ["MEMORY_ADVICE"]

_STATES = "optimizerStateTensorLocationSettings"

MEMORY_ADVICE: Mapping[RemedyKind, str] = MappingProxyType(
    {
        **ADVICE,
        RemedyKind.STATES_OFF_CHIP: f"put the optimiser state off chip: {_STATES} with TensorStorage.OffChip",
        RemedyKind.STATES_SHARDED: "share the optimiser state between the {replicas} replicas: "
        f"{_STATES} with ReplicatedTensorSharding.On",
        RemedyKind.MORE_IPUS: "spread each replica over {ipus} IPUs with virtual graphs",
        RemedyKind.RECOMPUTE: "set autoRecomputation = RecomputationType.Standard",
        RemedyKind.ACTIVATIONS_OFF_CHIP: "keep activations off chip: activationTensorLocationSettings with "
        "TensorStorage.OffChip",
    }
)
