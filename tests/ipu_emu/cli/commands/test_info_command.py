"""ipu-emu info: systems as text, SVG and JSON."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from ipu_emu.cli import main
from tests.ipu_emu.helpers.commands import ipu_emu, printed


@pytest.mark.parametrize("name", ["pod4", "bow-pod64", "4xpod16", "c2", "dss8440"])
def test_all_ipus_are_drawn(name: str) -> None:
    facts = json.loads(printed(f"info --system {name} --format json"))
    drawn = printed(f"info --system {name}")
    machines = re.sub(r"\A.*machine  domain|tiles .*", "", drawn, flags=re.DOTALL)
    shown = {int(word) for word in re.findall(r"(?<=[ ═])\d+(?= *(?:═|$| {3}))", machines, flags=re.MULTILINE)}
    assert set(range(facts["ipus"])) <= shown
    assert [place["ipu"] for place in facts["placement"]] == list(range(facts["ipus"]))


def test_the_environment_names_the_system() -> None:
    assert printed("info", IPU_EMU_SYSTEM="bow-pod64").startswith("Bow Pod64   64 Bow IPUs")


def test_mistakes() -> None:
    done = ipu_emu("info --system pod12")
    assert (done.exit_code, done.stderr.split(";")[0]) == (2, "Error: --system pod12: there is no such system")


def test_an_invalid_environment_is_refused() -> None:
    done = ipu_emu("info", POPDIST_NUM_TOTAL_REPLICAS="many")
    assert (done.exit_code, "'many' is not a whole number" in done.stderr) == (2, True)


def test_ascii_terminals_get_placeholders() -> None:
    done = CliRunner(charset="ascii").invoke(main, ["info"])
    assert (done.exit_code, b"0 ??  1" in done.stdout_bytes) == (0, True)
