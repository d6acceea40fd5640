"""Marked loss: the tensor that a module is trained on, the result of its last loss function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ipu_emu.graph import Graph
from ipu_emu.graph.op import Op
from ipu_emu.poptorch.errors import Error
from popdist_py.messages.user_warning import warn_user

#: The ops that leave values as they are.
_SAME_VALUES = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))


def marked_loss(graph: Graph, marked: Sequence[str]) -> str:
    """Return the one of the ``marked`` losses that no other is computed from; raise poptorch.Error for several."""
    if not marked:
        raise Error("Couldn't find a loss in graph!")
    makers = graph.producers()
    reached = {ancestor for id in set(marked) for ancestor in _ancestors(id, makers)}
    final = set(marked) - reached
    if len(final) != 1:
        raise Error(
            "Multiple independent losses found in graph. Graph must have one final loss. Wrap final graph loss "
            "in poptorch.identity_loss."
        )
    return final.pop()


def say_unmarked(graph: Graph, marked: Sequence[str], outputs: Sequence[Any]) -> None:
    """Warn if forward returns what it computes from its loss, and not the loss itself."""
    makers, loss = graph.producers(), marked_loss(graph, marked)
    ids = [id for id in outputs if isinstance(id, str)]
    if any(loss in {id, *_ancestors(id, makers, _SAME_VALUES)} for id in ids):
        return
    if any(loss in _ancestors(id, makers) for id in ids):
        warn_user(
            "The module is trained on the result of its last loss function, and not on what forward computes from it "
            "and returns; wrap that in poptorch.identity_loss(x, reduction) to train on it"
        )


def _ancestors(id: str, makers: Mapping[str, Op], through: frozenset[str] | None = None) -> set[str]:
    """The tensors that ``id`` is computed from, by ops of any type or ``through`` some."""
    waiting, ancestors = [id], set[str]()
    while waiting:
        maker = makers.get(waiting.pop())
        if maker is not None and (through is None or maker.type in through):
            inputs = {name for name in maker.inputs if name} - ancestors
            ancestors |= inputs
            waiting += inputs
    return ancestors
