"""ipu-emu predict and calibrate: text, JSON, pictures, and messages for mistakes."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from ipu_emu.cli import main

SVG = "{http://www.w3.org/2000/svg}"
RESNET = "predict resnet50 --replicas 16 --batch 20 --accumulation 10 --recompute --optimiser lars --bn-span 2"
BERT = (
    "predict bert-large --length 512 --masked 76 --packing 2 --batch 2 --accumulation 192 --ipus 4 --replicas 4 "
    "--layers 3,7,7,7 --recompute --optimiser lamb --shared states --off-chip states"
)


def run(command: str) -> Result:
    return CliRunner().invoke(main, command.split(), catch_exceptions=False)


def test_text() -> None:
    done = run(f"{RESNET} --explain --what-if gw-links=x2 --samples 1281167 --epochs 38")
    assert done.exit_code == 0
    for word in ("predicted", "uncalibrated", "90 %", "compute", "limited by", "memory", "to train", "gw-links=x2"):
        assert word in done.stdout


def test_latency_is_that_of_a_micro_batch_in_all_stages() -> None:
    """A pipeline of 4 IPUs has 4 slots of a micro-batch in inference, 8 of both passes in training (grouped)."""
    for words, slots in (("--ipus 4 --inference", 4), ("--ipus 4", 8), ("--ipus 4 --schedule interleaved", 4)):
        facts = json.loads(run(f"predict resnet50 --batch 20 --accumulation 8 --format json {words}").stdout)
        slot = facts["terms_seconds"]["compute"] / 8
        latency = facts["micro_batch_latency_seconds"] - 20 * 150_528 / 12.5e9  # images come over 100 GbE
        assert latency == pytest.approx(slots * slot, rel=0.01)
        assert latency > 20 / facts["samples_per_second"]
    assert re.search(r"latency +[\d.]+ ms of a micro-batch", run(RESNET).stdout)


def test_remedies_are_flags_with_which_the_job_fits() -> None:
    said = run("predict gpt2 --batch 8 --optimiser adam --system pod16").stdout
    _, _, remedies = said.partition("\nRemedies, each of which suffices:\n  ")
    flags, _, need = remedies.splitlines()[0].rpartition(": ")
    assert "of 897 MiB on IPU" in need
    command = f"predict gpt2 --batch 8 --optimiser adam --system pod16 {flags.replace(' and ', ' ')} --format json"
    assert json.loads(run(command).stdout)["memory"]["verdict"] == "fits"
    assert "Remedies" not in run(RESNET).stdout


def test_instances_are_compared_with_numa_nodes() -> None:
    said = run(f"{RESNET} --system pod64 --hosts 4 --instances 16").stdout
    assert "instances     up to 4 on each of 4 hosts: a host should have as many NUMA nodes" in said
    assert "NUMA" not in run(RESNET).stdout


def test_rates_below_one_have_significant_digits() -> None:
    """Attention over a sample of that length takes so long that the other costs vanish in floating-point sums."""
    said = run("predict t5-small --length 100000").stdout
    match = re.search(r"predicted +(0\.\d{3}) .*90 %: (0\.\d{3}) to (0\.\d{3})", said)
    assert match is not None
    assert 0 < float(match[2]) < float(match[1]) < float(match[3]) < 1


def test_json_has_the_unit_in_every_key() -> None:
    facts = json.loads(run(f"{BERT} --format json").stdout)
    assert {
        *("schema", "job", "samples_per_second", "samples_per_second_90", "step_seconds", "terms_seconds"),
        *("uncalibrated_samples_per_second", "mfu", "hfu", "limiting", "memory", "efficiency", "seconds_to_train"),
        *("calibration", "warnings"),
    } <= set(facts)
    assert set(facts["terms_seconds"]) == {
        *("compute", "ramps", "ipu_links", "gw_links", "host", "streaming", "update", "fixed"),
    }
    assert sum(facts["terms_seconds"].values()) == pytest.approx(facts["step_seconds"], rel=1e-9)
    assert facts["samples_per_second"] == pytest.approx(3072 / facts["step_seconds"])
    assert 0 < facts["mfu"] < facts["hfu"] < 1
    assert {"value", "sigma", "unit", "meaning", "identified"} <= set(facts["calibration"]["parameters"][0])
    assert facts["memory"]["verdict"] == "fits"
    assert len(facts["memory"]["ipus"]) == 4


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
def test_pictures(tmp_path: Path, suffix: str) -> None:
    if suffix == "png":
        pytest.importorskip("matplotlib")
    path = tmp_path / f"picture.{suffix}"
    done = run(f"{RESNET} --format json --output {path}")
    assert done.exit_code == 0
    start = {"svg": b"<svg", "png": b"\x89PNG", "html": b"<!doctype html>"}[suffix]
    assert path.read_bytes().startswith(start)


def drawn(svg: ElementTree.Element) -> tuple[list[str], dict[str, float]]:
    """The texts of a picture, and the widths of its boxes by their titles."""
    texts = [element.text or "" for element in svg.iter(f"{SVG}text")]
    titled = [element for element in svg.iter(f"{SVG}rect") if element.findtext(f"{SVG}title")]
    return texts, {element.findtext(f"{SVG}title", ""): float(element.get("width", 0)) for element in titled}


def test_a_drawing_has_the_numbers_of_the_json(tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    printed = json.loads(run(f"{RESNET} --what-if gw-links=x2 --format json --output {path}").stdout)
    svg = ElementTree.parse(path).getroot()
    assert json.loads(svg.findtext(f"{SVG}metadata") or "") == printed
    texts, boxes = drawn(svg)
    low, high = printed["samples_per_second_90"]
    assert f"{printed['samples_per_second']:,.1f} samples/s, 90 %: {low:,.0f} to {high:,.0f}" in texts
    (change,) = printed["what_if"]
    assert f"{change['samples_per_second']:,.1f} /s, x {change['speedup']:.3f}" in texts
    terms, step = printed["terms_seconds"], printed["step_seconds"]
    widths = {title.split()[0]: width for title, width in boxes.items() if title.split()[0] in terms}
    assert set(widths) == set(terms)
    for term, seconds in terms.items():
        assert widths[term] / sum(widths.values()) == pytest.approx(seconds / step, abs=1e-3)


def test_a_png_has_the_numbers_of_the_json(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.png"
    printed = json.loads(run(f"{RESNET} --format json --output {path}").stdout)
    content, facts, place = path.read_bytes(), b"", 8
    while place < len(content):
        size, kind = struct.unpack(">I4s", content[place : place + 8])
        text = content[place + 8 : place + 8 + size]
        facts = text.partition(b"\0")[2] if kind == b"tEXt" and text.startswith(b"facts\0") else facts
        place += 12 + size
    assert json.loads(facts) == printed


def test_a_page_needs_no_network_and_has_the_numbers_of_the_json(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    printed = json.loads(run(f"{RESNET} --format json --output {path}").stdout)
    page = path.read_text()
    assert not re.search(r"""(?:src|href)=|url\(["']?http|@import""", page)
    (data,) = re.findall(r'<script type="application/json" id="facts">\n(.*?)\n</script>', page, flags=re.DOTALL)
    assert json.loads(data) == printed
    cells = dict(re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td></tr>", page))
    assert cells["samples_per_second"] == json.dumps(printed["samples_per_second"])
    assert cells["terms_seconds.gw_links"] == "0.0"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("predict resnet51", "did you mean resnet50"),
        (f"{RESNET} --what-if warp=x2", "--what-if warp=x2 is not valid"),
        (f"{RESNET} --calibration none --anchor pod16=29543", "--anchor corrects a calibration"),
        (f"{RESNET} --calibration /nonexistent", "cannot be read"),
        (f"{RESNET} --layers 3,x", "layers 3,x are not valid"),
        (f"{RESNET} --host-rate fast", "--host-rate fast is not valid"),
        (f"{RESNET} --output p.pdf", "use one of these suffixes"),
        (f"{RESNET} --unknown 0", "--unknown 0 is not possible"),
        (f"{RESNET} --global-batch 77", "the nearest is 320"),
        (f"{RESNET} --global-batch 640", "--global-batch 640 makes --accumulation 2, not 10; give either"),
        ("predict resnet50 --hosts 1000 --replicas 16", "Pod16 has 4 IPU-Machines; use at most 4"),
        ("predict resnet50 --replicas 128 --hosts 1", "are in 2 Pods, each with its own host; use at least 2"),
        ("calibrate /nonexistent", "cannot be read"),
        ("calibrate /dev/zero", "cannot be read: It is a pipe or a device"),
        (f"{RESNET} --calibration /dev/zero", "cannot be read: It is a pipe or a device"),
        (f"{RESNET} --optimiser adan", "did you mean 'adam'?"),
        (f"{RESNET} --off-chip weigths", "did you mean 'weights'?"),
        (f"{RESNET} --what-if gw-link=x2", "did you mean 'gw-links'?"),
        (f"{RESNET} --sweep bach=1..8", "did you mean 'batch'?"),
        (f"{RESNET} --global-batch nan", "a global batch of nan is not possible"),
        (f"{RESNET} --global-batch inf", "a global batch of inf is not possible"),
        (f"{RESNET} --packing inf", "packing inf is not possible; use at most 1,000,000,000"),
        (f"{RESNET} --batch 99999999999999999999", "is not possible; use at most"),
        (f"{RESNET} --bn-span 0", "bn_span 0 is not possible"),
        (f"{RESNET} --host-rate 0", "--host-rate 0: the rate must be above 0"),
        (f"{RESNET} --samples 100", "belong together"),
        (f"{RESNET} --samples nan --epochs 2", "must be finite and not negative"),
        (f"{RESNET} --unknown inf", "--unknown inf is not possible"),
        ("predict resnet50 --replicas 1000000", "the largest Pod has 65,536"),
        (f"{RESNET} --sweep batch=1..8 --sweep batch=2", "a name is given twice"),
        (f"{RESNET} --sweep batch=1..8 --global-batch 64", "--global-batch: --sweep takes the accumulation"),
        ("predict resnet50 --search --batch 4", "--batch: --search tries all values of it"),
        ("predict resnet50 --search --global-batch nan", "a global batch of nan is not possible"),
        ("predict nosuch.onnx", "nosuch.onnx is not a file; name an ONNX file"),
        ("predict /tmp", "/tmp is a folder, not an ONNX file"),
        ("calibrate -o /nonexistent/profile.json", "--output /nonexistent/profile.json cannot be written"),
    ],
)
def test_mistakes(command: str, said: str) -> None:
    done = run(command)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("predict resnet8 --top 3", "--top has no effect without --search"),
        ("predict resnet8 --unknown 3", "--unknown has no effect as there is no unknown parameter"),
        (
            "predict resnet8 --sweep batch=1,2 --top 3 --samples 9 --epochs 2",
            "--samples and --epochs and --top have no effect on --search and --sweep",
        ),
        (
            "predict resnet8 --replicas 96",
            "96 replicas of 1 IPU take 96 IPUs, and a job gets a power of two: 128, of which 32 idle",
        ),
        ("predict resnet8 --global-batch 8 --batch 4 --accumulation 2", ""),
    ],
)
def test_options_without_effect_are_named(command: str, said: str) -> None:
    done = run(command)
    assert done.exit_code == 0
    assert done.stderr == (f"Warning: {said}\n" if said else "")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", ["are in FLOAT, and so is the prediction", "has convolutions without normalisations"]),
        ("--dtype float", ["has convolutions without normalisations"]),
        ("--dtype float16 --inference", []),
    ],
)
def test_an_export_for_inference_and_in_float_is_said(tmp_path: Path, more: str, said: list[str]) -> None:
    make, info = onnx.helper, onnx.helper.make_tensor_value_info
    weight = onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    node = make.make_node("Conv", ["x", "w"], ["y"])
    ends = (info(name, onnx.TensorProto.FLOAT, shape) for name, shape in (("x", [1, 3, 8, 8]), ("y", [1, 4, 6, 6])))
    graph = make.make_graph([node], "g", *([end] for end in ends), [weight])
    file = tmp_path / "folded.onnx"
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 11)], ir_version=7), file)
    done = run(f"predict {file} {more}")
    assert done.exit_code == 0
    lines = done.stderr.splitlines()
    assert len(lines) == len(said)
    assert all(words in line for line, words in zip(lines, said, strict=True))


def test_the_table_of_terms_in_the_help_is_aligned() -> None:
    lines = run("predict --help").stdout.partition("How to read the terms")[2].splitlines()[1:5]
    names = ("ramps", "gw_links", "streaming", "fixed")
    assert len({line.index(name) for line, name in zip(lines, names, strict=True)}) == 1


def test_networks_are_listed() -> None:
    assert "efficientnet-b4" in run("predict --list").stdout


def resnet_rows() -> str:
    """The measured rows of one network, to which a calibration is fitted in a second."""
    header, *lines = run("calibrate --print-rows").stdout.splitlines()
    return "\n".join([header, *[line for line in lines if line.startswith("ResNet-50 v1.1 POD16")]])


def test_files_that_are_too_long_or_too_deep(tmp_path: Path) -> None:
    path = tmp_path / "file"
    cases = {
        "x" * 200_000: "field larger than field limit",
        "\0" * (17 << 20): "more than the 16,777,216 bytes",
    }
    for text, said in cases.items():
        path.write_text(text)
        done = run(f"calibrate {path}")
        assert done.exit_code == 2
        assert said in done.stderr
    path.write_text("[" * 100_000)
    assert "is not a calibration" in run(f"{RESNET} --calibration {path}").stderr
    path.write_text(resnet_rows(), encoding="utf-8-sig", newline="\r\n")
    assert run(f"calibrate {path}").exit_code == 0


def test_a_calibration_is_written_and_used(tmp_path: Path) -> None:
    rows, profile = tmp_path / "rows.csv", tmp_path / "profile.json"
    rows.write_text(resnet_rows())
    done = run(f"calibrate {rows} -o {profile}")
    assert done.exit_code == 0
    assert "product_share is not identified" in done.stdout
    facts = json.loads(run(f"{RESNET} --calibration {profile} --format json").stdout)
    assert facts["step_seconds"] == pytest.approx(0.10832, rel=0.02)
    assert facts["calibration"]["rows"] == 1


def test_a_search_as_text_json_and_picture(tmp_path: Path) -> None:
    command = "predict bert-base --search --system pod16 --global-batch 512 --optimiser adam"
    assert "= ties" in run(f"{command} --top 3").stdout
    page = tmp_path / "search.html"
    facts = json.loads(run(f"{command} --format json --top 3 --output {page}").stdout)
    assert len(facts["rows"]) == 3
    assert {row["global_batch_samples"] for row in facts["rows"]} == {512}
    (data,) = re.findall(r'id="facts">\n(.*?)\n</script>', page.read_text(), flags=re.DOTALL)
    assert json.loads(data) == facts


def test_a_sweep_is_drawn_with_what_does_not_fit(tmp_path: Path) -> None:
    map_, curve = tmp_path / "map.svg", tmp_path / "curve.svg"
    done = run(f"predict resnet50 --sweep replicas=1..16x2 --sweep batch=8..20 --format json --output {map_}")
    verdicts = [row["verdict"] for row in json.loads(done.stdout)["rows"]]
    assert len(verdicts) == 5 * 13
    assert map_.read_text().count("<rect") == 1 + 65
    assert "does not fit" in verdicts
    assert "does not fit</title>" in map_.read_text()
    assert run(f"predict resnet50 --sweep replicas=1..16x2 --output {curve}").exit_code == 0
    assert "samples/s" in curve.read_text()


def test_sweep_and_search_exclude_each_other() -> None:
    done = run("predict resnet50 --search --sweep batch=1,2")
    assert done.exit_code == 2
    assert "cannot be combined with each other" in done.stderr


def test_clock_and_memory_quote_the_same_prediction() -> None:
    options = "resnet8 --batch 4 --accumulation 6 --replicas 16 --optimiser momentum"
    alone = json.loads(run(f"predict {options} --no-overlap-io --input-dtype float16 --format json").stdout)
    clock = json.loads(run(f"clock {options} --format json").stdout)["predicted"]
    memory = json.loads(run(f"memory {options} --format json").stdout)["predicted"]
    assert clock == alone
    assert memory == alone["memory"]
    shown = run(f"clock {options}").stdout
    assert f"--no-overlap-io --input-dtype float16: {alone['samples_per_second']:,.1f} samples per second" in shown
    assert "ipu-emu predict: fits, IPU " in run(f"memory {options}").stdout


def test_recomputation_is_asked_for_as_of_clock() -> None:
    """With and without a value, before and after the model."""
    options = "--batch 20 --replicas 16 --accumulation 10 --format json"
    said = [
        json.loads(run(f"predict {words} {options}").stdout)["samples_per_second"]
        for words in ("--recompute resnet50", "resnet50 --recompute", "resnet50 --recompute Standard", "resnet50")
    ]
    assert said[0] == said[1] == said[2] < said[3]
