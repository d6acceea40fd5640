"""ipu-emu info: systems as text, SVG and JSON."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from gcl.fabric.ring_order import Order, ring
from ipu_emu.cli import main
from ipu_emu.hardware import PATTERNS, Position, groups
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


def test_rates_of_links_are_each_way() -> None:
    rates = json.loads(printed("info --format json"))["generation"]["bytes_per_second_per_direction"]
    assert rates["GW-Links"] == 2 * 100e9 / 8
    assert rates["host"] == 100e9 / 8
    assert rates["a rail"] == 2 * 128 * 2**30 * 0.85 / 8
    said = re.sub(r"\s+", " ", printed("info --system pod4"))
    assert "a rail 32 GB/s each way, 29.21 modelled: 64 GB/s bidirectional is 2 links of 16 GB/s each way" in said
    assert "GW-Links" not in printed("info --system c2")


def test_a_dss8440_has_eight_cards() -> None:
    said = printed("info --system dss8440")
    assert "16 GC2 IPUs, 8 C2 cards" in said
    assert re.findall(r"^ +(\d)   +\d+ ══ +\d+", said, flags=re.MULTILINE) == list("76543210")
    layers = [
        int(word) for pair in re.findall(r"layers +(\d+), +(\d+)", printed("info --draw cards")) for word in pair
    ]
    assert layers == list(range(32))


def test_drawings() -> None:
    links = printed("info --draw links")
    for ipu in range(4):
        assert f"IPU {ipu}" in links
        assert all("  ".join(ports) in links for ports in Position(ipu, 4).ports.values())
    assert printed("info --draw panel").count("4 IPU-Link ports") == 2
    names, sync = {2: "A", 3: "B", 0: "C", 1: "D"}, re.sub(" +", " ", printed("info --draw sync"))
    for name, pattern in PATTERNS.items():
        gs1, gs2 = (
            " ".join(f"[{' '.join(names[ipu] for ipu in group)}]" for group in groups(kind, list(names), 4))
            for kind in (pattern.gs1, pattern.gs2)
        )
        assert f"{name} GS1 {gs1} GS2 {gs2} host I/O: {pattern.host.upper()}" in sync
    assert {"Send", "Recv", "copy"} <= set(printed("info --draw copies").split())
    twist = printed("info --draw twist")
    for order in (Order.SERPENT, Order.MIRRORED_SERPENT):
        assert f"loop-back {ring(order, 8)[-1]} ══ {ring(order, 8)[0]}" in twist
    assert "--draw prints a drawing of its own" in ipu_emu("info --draw links --system c2").stderr


def test_mistakes() -> None:
    done = ipu_emu("info --system pod12")
    assert (done.exit_code, done.stderr.split(";")[0]) == (2, "Error: --system pod12: there is no such system")


def test_an_invalid_environment_is_refused() -> None:
    done = ipu_emu("info", POPDIST_NUM_TOTAL_REPLICAS="many")
    assert (done.exit_code, "'many' is not a whole number" in done.stderr) == (2, True)


def test_ascii_terminals_get_placeholders() -> None:
    done = CliRunner(charset="ascii").invoke(main, ["info"])
    assert (done.exit_code, b"0 ??  1" in done.stdout_bytes) == (0, True)
