"""PyTorch in the table of front ends: each cell works, or is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

from tests.ipu_emu.helpers.front_ends import cells, check  # noqa: E402
from tests.ipu_emu.helpers.pytorch_faces import PopTorch, Train  # noqa: E402

pytestmark = pytest.mark.torch

FACES = {"PopTorch": PopTorch, "ipu_emu.torch": Train}


@pytest.mark.parametrize(("name", "face"), cells(*FACES))
def test_a_cell_of_the_table_works(name: str, face: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, FACES[face](), tmp_path, monkeypatch)
