"""Replica grouping: parameters with a separate value for each group of replicas, on a leading axis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ipu_emu.errors import EmulatorError
from ipu_emu.onnx.properties import GroupKind, VariableGroups
from ipu_emu.poptorch.enums import CommGroupType, VariableRetrievalMode
from ipu_emu.poptorch.errors import Error, refusal

NAME = "replicaGrouping"


class ReplicaGrouping:
    """The attribute ``parameter.replicaGrouping``; it has an effect until the module is compiled."""

    def __init__(self) -> None:
        self.groups: VariableGroups | None = None
        self.fixed = False

    def __call__(
        self, comm_group_type: CommGroupType, shards: int, variable_retrieval_mode: VariableRetrievalMode
    ) -> None:
        """Divide the replicas into groups of ``shards`` replicas; the parameter has one entry for each group."""
        for value, kind in ((comm_group_type, CommGroupType), (variable_retrieval_mode, VariableRetrievalMode)):
            if not isinstance(value, kind):
                raise AssertionError(f"Unexpected type {type(value)} for replicaGrouping. Expected {kind}")
        if type(shards) is not int:
            raise AssertionError(f"Unexpected type {type(shards)} for shards of replicaGrouping. Expected {int}")
        if self.fixed:
            raise refusal("replicaGrouping was called on a compiled model; call it before, or call destroy() first")
        if variable_retrieval_mode is VariableRetrievalMode.AllReplicas:
            raise refusal(
                "VariableRetrievalMode.AllReplicas is not supported for a parameter: it has one value for each "
                "group of replicas. Use OnePerGroup"
            )
        self.groups = VariableGroups(GroupKind(int(comm_group_type)), shards)


def groups_of(tensor: torch.Tensor, name: str, *, replicas: int, processes: int) -> tuple[int, int] | None:
    """Return (stride, size) of the groups of replicas, None for one value; raise Error if they are invalid."""
    grouping = tensor.__dict__.get(NAME)
    if grouping is None:
        return None
    grouping.fixed = True
    if grouping.groups is None:
        return None
    try:
        among = grouping.groups.among(replicas)
        grouping.groups.shape_on_replica(tensor.shape, replicas, name)
    except EmulatorError as error:
        raise Error(str(error), "popart_exception") from error
    if among.count == 1:
        return None
    if processes > 1:
        raise refusal(
            f"replicaGrouping of {name} is not supported with {processes} processes: weights are fetched when one of "
            "them reads them. Use one process with all replicas"
        )
    return (among.stride, among.size)


@contextmanager
def without_groups(module: torch.nn.Module, parts: dict[int, Any]) -> Iterator[None]:
    """In ``module``, replace parameters with groups, by ``id``, by the part of one replica."""
    tables = [(submodule._parameters, dict(submodule._parameters)) for submodule in module.modules()] if parts else []
    for table, old in tables:
        table.update({name: parts.get(id(tensor), tensor) for name, tensor in old.items()})
    try:
        yield
    finally:
        for table, old in tables:
            table.update(old)
