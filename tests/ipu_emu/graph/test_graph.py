"""Graphs: new ids are found quickly."""

from __future__ import annotations

import pytest

from ipu_emu.graph import Graph, Tensor
from ipu_emu.graph.dtype import FLOAT


def test_new_ids_are_found_without_trying_all_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, queries, knows = Graph(), [], Graph.knows
    monkeypatch.setattr(Graph, "knows", lambda self, id: bool(queries.append(id)) or knows(self, id))
    ids = [graph.add(Tensor(graph.unused("x"), FLOAT, ())).id for _ in range(300)]
    assert ids == ["x", *(f"x/{number}" for number in range(1, 300))]
    assert len(queries) < 700
