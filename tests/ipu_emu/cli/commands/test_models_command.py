"""ipu-emu models: the list of models."""

from __future__ import annotations

import json

from tests.ipu_emu.helpers.commands import ipu_emu, printed


def test_sizes_are_printed_with_units() -> None:
    (line,) = (line for line in printed("models mlp").splitlines() if line.startswith("mlp"))
    assert line.split()[:8] == ["mlp", "669,706", "-", "-", "1.34", "MFLOP", "4.04", "KiB"]


def test_json() -> None:
    (facts,) = json.loads(printed("models bert-base --format json"))
    assert facts["parameters"] == 109_482_240


def test_mistakes() -> None:
    done = ipu_emu("models alexnet")
    assert (done.exit_code, done.stderr.split(";")[0]) == (2, "Error: there is no model 'alexnet'")
