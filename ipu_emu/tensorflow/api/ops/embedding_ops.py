"""Embeddings: rows of a table."""

from __future__ import annotations

from typing import Any

from tensorflow.python.ops import array_ops

from ipu_emu.session.options.without_effect import without_effect

__all__ = ["HostEmbedding", "create_host_embedding", "embedding_lookup"]


@without_effect("serialization_factor", "indices_are_sorted")
def embedding_lookup(
    params: Any,
    ids: Any,
    name: str | None = None,
    serialization_factor: int = 1,
    indices_are_sorted: bool = False,
) -> Any:
    """The rows of ``params`` at ``ids``; the table may be divided into ``serialization_factor`` parts."""
    rows = int(params.shape[0])
    if serialization_factor < 1 or rows % serialization_factor:
        raise ValueError(
            f"The serialization_factor ({serialization_factor}) must divide the number of rows of the table ({rows})"
        )
    return array_ops.gather(params, ids, name=name)


class HostEmbedding:
    """Refused: tables are kept in variables."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        raise NotImplementedError(
            "HostEmbedding is not supported; keep the table in a variable and use embedding_lookup"
        )


def create_host_embedding(*arguments: Any, **named: Any) -> None:
    """Raise NotImplementedError: tables are kept in variables."""
    raise NotImplementedError(
        "Host embeddings are not supported; keep the table in a variable and use embedding_lookup"
    )
