"""ipu-emu estimate: the formulas of the technical notes and the numbers of their examples."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from ipu_emu.cli import main


def estimate(command: str) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["estimate", *command.split(), "--format", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def test_a_step_from_its_two_times() -> None:
    facts = estimate("--t-mb 10.4ms --t-ar 4.4ms --batch 20 --accumulation 3 --replicas 64 --compute 4")
    assert facts["step_seconds"] == pytest.approx(35.600e-3)
    assert round(facts["samples_per_second"]) == 107_865
    assert facts["global_batch_samples"] == 3840
    assert facts["constant_share"] == pytest.approx(4.4 / 35.6)
    assert facts["amdahl_speedup"] < facts["gustafson_speedup"] < 4


def test_both_laws() -> None:
    facts = estimate("--constant 0.5 --compute 4")
    assert facts["amdahl_speedup"] == 1.6
    assert facts["amdahl_efficiency_percent"] == 40
    assert facts["gustafson_speedup"] == 2.5
    assert facts["gustafson_efficiency_percent"] == 62.5


def test_a_reduction_by_the_rule_the_ring_and_between_two_pods() -> None:
    facts = estimate("--tensor 51114064 --rate 29.206GB/s --replicas 16")
    assert facts["rule_seconds"] == pytest.approx(3.500e-3, abs=5e-7)
    assert facts["ring_seconds"] == pytest.approx(3.281e-3, abs=5e-7)
    pods = estimate("--tensor 51114064 --rate 29.206GB/s --replicas 128 --domains 2")
    assert pods["between_domains_seconds"] == pytest.approx(0.128e-3, abs=5e-7)
    assert pods["exchanged_bytes"] == 51_114_064 / 64
    assert "exchanged_bytes" not in estimate("--tensor 51114064 --replicas 256 --domains 4")


def test_two_points() -> None:
    facts = estimate("--point 6=69.75ms --point 2=30.69ms")
    assert facts["micro_batch_seconds"] == pytest.approx(9.765e-3, rel=1e-9)
    assert facts["constant_seconds"] == pytest.approx(11.16e-3, rel=1e-9)
    assert "0 degrees of freedom" in facts["formulas"]["micro_batch_seconds"]
    second = estimate("--point 10=108.32ms --point 3=35.55ms")
    assert round(1e3 * second["micro_batch_seconds"], 3) == 10.396
    assert round(1e3 * second["constant_seconds"], 2) == 4.36


def test_memory_by_both_formulas() -> None:
    dense = estimate("--layer dense:1000:10 --optimiser adam --batch 4 --dtype float")
    assert (dense["literal_bytes"], dense["deduplicated_bytes"]) == (240_400, 160_320)
    both = estimate("--layer dense:1000:10 --layer batchnorm:10 --optimiser momentum --batch 4 --dtype float")
    assert (both["literal_bytes"], both["deduplicated_bytes"]) == (160_720, 120_600)
    trained, inference = (estimate(f"--layer batchnorm:10 --layer dense:10:5{more}") for more in ("", " --inference"))
    assert [trained["trainable_parameters"], trained["non_trainable_parameters"]] == [2 * 10 + 55, 20]
    assert [inference["trainable_parameters"], inference["non_trainable_parameters"]] == [55, 20]
    assert estimate("--layer conv:3x3:64:128:nobias")["trainable_parameters"] == 3 * 3 * 64 * 128


def test_literal_and_stored_memory_of_bert_are_not_mixed_up() -> None:
    """At FLOAT16 the literal formula and FLOAT states nearly agree by chance; both are shown, with their names."""
    facts = estimate("bert-large --optimiser adam --batch 1 --ipus 4")
    assert facts["deduplicated_bytes"] < facts["literal_bytes"]
    assert facts["stored_bytes"] == facts["deduplicated_bytes"] + 2 * 2 * facts["trainable_parameters"]


def test_a_network() -> None:
    facts = estimate("resnet50 --replicas 128 --batch 20 --accumulation 2 --bn-span 2 --optimiser momentum")
    assert facts["trainable_parameters"] == 25_557_032
    assert facts["state_values"] == 25_557_032
    assert facts["rule_seconds"] == pytest.approx(3.5e-3, rel=1e-3)
    assert facts["gcl_seconds"] == pytest.approx(1.878e-3, rel=1e-3)
    wanted = 2 * facts["micro_batch_seconds"] + facts["rule_seconds"] + facts["between_domains_seconds"]
    assert facts["step_seconds"] == pytest.approx(wanted)
    assert sum(row["count"] * row["parameters"] for row in facts["layers"]) == 25_557_032


def test_less_available_memory_takes_more_cycles() -> None:
    """A tile holds parts of A and B for its part of C: with less room, A is sent again for each part of columns."""
    facts = estimate("--product 1024:1024:1024 --proportion 0.6 --proportion 0.05")
    much, little = (facts[f"temporary_{proportion}_bytes"] for proportion in ("0.6", "0.05"))
    assert little <= 0.05 * 624 * 1024 < much <= 0.6 * 624 * 1024
    assert facts["cycles_0.05"] > facts["cycles_0.6"] > 1024**3 / (64 * 1472)
    assert "in 1 part of N" in facts["formulas"]["temporary_0.6_bytes"]


def test_the_time_to_train() -> None:
    facts = estimate("resnet50 --replicas 16 --batch 20 --samples 1281167 --epochs 44")
    assert facts["seconds_to_train"] == pytest.approx(1_281_167 * 44 / facts["samples_per_second"])


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "--constant 0.5 --compute 4 --replicas 64 --rate 5GB",
            "--replicas and --rate have no effect with --constant",
        ),
        ("--t-mb 1ms --t-ar 1ms --global-batch 64", "--global-batch has no effect with --t-mb"),
        ("resnet50 --schedule popart", "--schedule has no effect with MODEL"),
        ("--layer dense:10:10 --dtype float --batch 4 --optimiser adam --activations 10", ""),
        ("--tensor 1MB --replicas 4 --domains 2 --rate 1GB --gateway-rate 1GB", ""),
    ],
)
def test_options_without_effect_are_named(command: str, said: str) -> None:
    done = CliRunner().invoke(main, ["estimate", *command.split()], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stderr == (f"Warning: {said}\n" if said else "")


def test_equal_layers_are_one_row() -> None:
    layers = estimate("bert-base")["layers"]
    assert [row["count"] for row in layers if "attention" in row["block"]] == [12]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "nothing given"),
        ("resnet50 --constant 0.5", "MODEL and --constant given"),
        ("--t-mb 10ms", "belong together"),
        ("--t-mb 10 --t-ar 4ms", "10 is not a time"),
        ("--t-mb 10ms --t-ar 4ms --replicas 0", "--replicas 0 is not possible"),
        ("--constant 1.5", "constant share of 1.5"),
        ("--constant 0.5 --compute inf", "inf times the compute is not possible; use a finite number above 0"),
        ("--tensor much", "--tensor much is not valid"),
        ("--tensor 1MB --replicas 3 --domains 2", "use a number of domains that divides them"),
        ("--point 3=1ms", "at least two accumulations"),
        ("--point x=1ms", "--point x=1ms is not valid"),
        ("--product 4096:4096", "write rows, depth and columns"),
        ("--layer dense:10", "--layer dense:10 is not valid"),
        ("--layer dense:10:10 --batch 0", "--batch 0 is not possible"),
        ("--t-mb 1e400s --t-ar 4ms", "must be finite"),
        ("--tensor 0 --replicas 16", "bytes of a tensor must be above 0"),
        ("--point 1=5ms --point 2=3ms", "there is no t above 0"),
    ],
)
def test_mistakes(command: str, said: str) -> None:
    done = CliRunner().invoke(main, ["estimate", *command.split()], catch_exceptions=False)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
