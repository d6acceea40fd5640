"""Generations of IPUs: the numbers of the data sheets, which no other file has, and Pods of every generation."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import ipu_emu
from ipu_emu.hardware import BOW, GC2, GC200, GENERATIONS, Generation, System
from ipu_emu.popart import DeviceManager
from tests.ipu_emu.helpers.commands import printed

WITH_PODS = [kind for kind in GENERATIONS.values() if kind.pods is not None]


def test_peaks_are_those_of_the_data_sheets() -> None:
    peaks = {g.name: (g.peak(2) / 1e12, g.peak(4) / 1e12) for g in (GC2, GC200, BOW)}
    assert peaks["GC2"] == pytest.approx((124.5, 31.1), rel=1e-3)
    assert peaks["GC200"] == pytest.approx((250, 62.4), rel=5e-3)
    assert peaks["Bow"] == pytest.approx((350, 87.1), rel=5e-3)
    assert [round(g.exchange / 1e12, 2) for g in (GC2, GC200, BOW)] == [7.78, 7.83, 10.89]
    assert [g.sram // 2**20 for g in (GC2, GC200, BOW)] == [304, 897, 897]


@pytest.mark.parametrize("kind", WITH_PODS, ids=lambda kind: kind.version)
def test_commands_model_the_ipus_of_the_row(kind: Generation) -> None:
    name = f"{kind.pods}pod4".lower().replace(" ", "-")
    assert System.named(name).generation is kind
    step = json.loads(printed(f"clock mlp --system {name} --calibration none --format json"))
    assert step["modelled_cycles"] == round(step["modelled_seconds"] * kind.clock)
    assert json.loads(printed(f"memory mlp --system {name} --format json"))["sram_bytes_per_ipu"] == kind.sram
    device = DeviceManager().createOfflineIPUDevice({"numIPUs": 1, "ipuVersion": kind.version})
    assert device.tilesPerIPU == kind.tiles


def tree_with(known: set[str | float], text: str) -> ast.AST:
    """The tree of a module; an empty one if no number or word of its text is ``known``, because parsing is slow."""
    words = set(re.findall(r"\w+", text)) | {
        float(number.replace("_", "")) for number in re.findall(r"\b\d[\d_]*(?:\.\d+)?(?:e\d+)?", text)
    }
    return ast.parse(text if words & known else "")


def test_no_other_file_has_the_properties_of_a_generation() -> None:
    own = {kind: {kind.version, kind.tiles, kind.clock, kind.tile_memory} for kind in GENERATIONS.values()}
    known, root = set[str | float]().union(*own.values()), Path(ipu_emu.__file__).parent
    files = [path for path in root.rglob("*.py") if path.name != "generation.py"]
    for path in files:
        for node in ast.walk(tree_with(known, path.read_text())):
            assert not (isinstance(node, ast.Constant) and node.value in known), f"{path}: {node.value!r}"
