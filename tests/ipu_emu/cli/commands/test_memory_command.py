"""ipu-emu memory: the memory plan of a model and its estimate, in every format, and advice if it does not fit."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gcl.drawing.units import memory
from ipu_emu.cli.output import printing
from ipu_emu.hardware import GC200
from ipu_emu.models import named
from ipu_emu.session.memory_liveness import ESTIMATED
from ipu_emu.session.memory_remedies import Change, Remedies
from tests.ipu_emu.helpers.commands import ipu_emu, printed


def test_parts_add_up(model: str) -> None:
    facts = json.loads(printed(f"memory {model} --loss loss --optimiser momentum --format json"))
    (ipu,) = facts["ipus"]
    assert ipu["bytes"] == sum(ipu["parts"].values())
    assert ipu["parts"]["weights"] == 8 * 4 * 4
    assert ipu["parts"]["optimiser states"] >= 8 * 4 * 4
    assert facts["sram_bytes_per_ipu"] == GC200.sram


def test_a_small_model_grows_in_micro_batch_layers_and_replicas() -> None:
    command = "memory mlp --sweep batch=64,128 --sweep layers=2,4 --sweep replicas=1,2,4"
    rows = json.loads(printed(f"{command} --format json"))["sizes"]
    sizes = {(row["grown"], row["value"]): row for row in rows}
    data, code = "data_bytes", "code_bytes"
    assert sizes["batch", 128][data] > sizes["batch", 64][data]
    assert sizes["batch", 128]["host_exchange_bytes"] > sizes["batch", 64]["host_exchange_bytes"]
    assert sizes["layers", 4]["exchange_bytes"] > sizes["layers", 2]["exchange_bytes"]
    assert sizes["layers", 4][data] - sizes["layers", 2][data] >= 2 * 2 * (512 * 512 + 512) * 2  # and gradients
    alone, pair, four = (sizes["replicas", count] for count in (1, 2, 4))
    assert alone["ipu_exchange_bytes"] == 0
    assert four["ipu_exchange_bytes"] == 3 * pair["ipu_exchange_bytes"] > 0
    assert alone[code] == sizes["layers", 2][code]
    assert "replicas 4" in printed(command)
    assert "resnet8 has a fixed number of layers" in ipu_emu("memory resnet8 --sweep layers=1,2").stderr
    assert "write one of batch, layers, replicas" in ipu_emu("memory mlp --sweep width=1,2").stderr


def test_exchange_is_between_tiles_between_ipus_and_with_the_host() -> None:
    facts = json.loads(printed("memory mlp --ipus 2 --schedule popart --accumulation 4 --batch 100 --format json"))
    for ipu in facts["ipus"]:
        assert all(ipu["parts"][kind] > 0 for kind in ("exchange", "IPU exchange", "host exchange"))
    assert facts["ipus"][0]["parts"]["host exchange"] >= 100 * 784 * 2  # a buffer of the images


def test_streaming_memory_is_shown_apart(model: str) -> None:
    command = f"memory {model} --loss loss --optimiser momentum --off-chip states"
    (ipu,) = json.loads(printed(f"{command} --format json"))["ipus"]
    assert ipu["parts"]["optimiser states"] == 0
    assert ipu["streaming_bytes"] >= 8 * 4 * 4
    assert ipu["bytes"] == sum(ipu["parts"].values())
    assert "Streaming" in printed(f"{command} --recompute --replicas 2 --shared states")


def test_every_kind_of_recomputation() -> None:
    command = "transformer --batch 4 --ipus 2 --schedule popart --accumulation 4 --format json"
    stashes = {}
    for words in ("", "--recompute", "--recompute standard", "--recompute=NormOnly", "--recompute recomputeall"):
        facts = json.loads(printed(f"memory {words} {command}"))
        stashes[words] = sum(ipu["parts"]["stashes"] for ipu in facts["ipus"])
    plain, alone, standard, norms, everything = stashes.values()
    assert everything < alone == standard < norms < plain
    assert "recomputation (Pipeline)" in printed("memory mlp --ipus 2 --recompute pipeline")
    assert "'mlp' is not one of" not in printed("clock --recompute mlp")


def test_warnings_are_a_line_each() -> None:
    done = ipu_emu("memory mlp --optimiser momentum --shared states")
    assert done.stderr == "Warning: Replicated tensor sharding has no effect: there is one replica\n"


def test_the_plan_is_printed_with_the_estimate(model: str) -> None:
    facts = json.loads(printed("memory mlp --batch 8 --dtype float --optimiser adam --accumulation 2 --format json"))
    held = facts["ipus"][0]["parts"]
    data = sum(held.values()) - sum(held[part] for part in ESTIMATED)
    assert facts["estimated_bytes"] <= data * 1.01 <= 1.3 * facts["estimated_bytes"]
    assert "estimated by formula" in printed("memory resnet8 --inference")
    assert "estimated by formula" not in printed(f"memory {model} --inference")


def test_accumulators_go_off_chip(model: str) -> None:
    command = f"memory {model} --loss loss --accumulation 4 --format json"
    (near,), (far,) = (json.loads(printed(command + more))["ipus"] for more in ("", " --off-chip accumulators"))
    assert near["streaming_bytes"] == 0
    assert far["streaming_bytes"] >= 8 * 4 * 4


def test_inputs_wait_in_streaming_memory(model: str) -> None:
    command = f"{model} --loss loss --prefetch 3 --format json"
    (ipu,) = json.loads(printed(f"memory {command}"))["ipus"]
    assert ipu["streaming_bytes"] > 0
    assert "prefetch into Streaming Memory" in printed(f"clock {model} --loss loss --prefetch 3")


def test_an_open_batch_is_filled(model: str) -> None:
    for batch in (1000, 2000):
        said = printed(f"memory {model} --inference --batch {batch}")
        assert f"micro-batches of {batch}\n" in said
        assert f"{memory(batch * 8 * 4)}  x" in said


def test_an_ipu_per_bar() -> None:
    said = printed("memory mlp --ipus 2 --schedule popart --accumulation 4 --system bow-pod16")
    bars = re.findall(r"IPU (\d) +[A-Z·]+ +[\d.]+ [KM]iB of 897 MiB, [\d.]+%", said)
    assert bars == ["0", "1"]


def test_a_terminal_of_80_columns_keeps_whole_columns_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a row for each IPU is too wide, there is a column for each; nothing is cut off."""
    monkeypatch.setattr(printing, "terminal_width", lambda: 80)
    command = "memory transformer --ipus 8 --schedule popart --accumulation 16"
    said = printed(command)
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
    facts = json.loads(printed(f"{command} --format json"))
    blocks = re.findall(r"(?:(?<=\n)use .+\n(?:.+\n)+)", said)
    totals = [total for block in blocks for total in re.findall(r"[\d.]+ [KMG]?i?B", block.splitlines()[-1])]
    assert totals == [memory(ipu["bytes"]) for ipu in facts["ipus"]]
    names = [name for block in blocks for name in re.findall(r"IPU \d+", block)]
    assert names == [f"IPU {ipu['ipu']}" for ipu in facts["ipus"]]
    assert "F FIFOs" in said  # no line break between a mark and its name


def test_a_remedy_is_the_flags_with_which_the_model_fits() -> None:
    said = printed("memory mlp --batch 300000 --inference")
    assert "does not fit" in said
    _, _, remedies = said.partition("\nRemedies, each of which suffices:\n  ")
    flags, _, need = remedies.strip().rpartition(": ")
    assert flags == "--batch 150000 --accumulation 2"
    again = printed(f"memory mlp --inference {flags}")
    assert "does not fit" not in again
    assert need.split(" of ")[0] in again


@pytest.mark.parametrize(
    ("words", "tried"),
    [
        ("--batch 600000 --dtype float", {"--batch", "--dtype", "--ipus"}),
        ("--batch 600001 --dtype float", {"--dtype", "--ipus"}),
        ("--batch 600000 --dtype float16", {"--batch", "--ipus"}),
    ],
    ids=["all", "odd micro-batch", "FLOAT16"],
)
def test_flags_that_change_nothing_are_not_tried(
    words: str, tried: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()

    def find(_: object, changes: list[Change[Any]], *__: object, **___: object) -> Remedies:
        seen.update(change.advice.split()[0] for change in changes)
        return Remedies()

    monkeypatch.setattr("ipu_emu.session.memory_remedies.find_remedies", find)
    printed(f"memory mlp --inference {words}")
    assert seen == tried


def test_micro_batches_of_a_file_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    path.write_bytes(named("mlp", batch=200_000, dtype=np.float32).proto)
    said = printed(f"memory {path} --inference")
    assert "No known remedy suffices. The one that saves the most is\n  --ipus 4: 1.57 GiB of 897 MiB" in said
    assert "--batch" not in said


@pytest.mark.parametrize("ending", ["svg", "html", "png"])
def test_pictures(model: str, tmp_path: Path, ending: str) -> None:
    if ending == "png":
        pytest.importorskip("matplotlib")
    path = tmp_path / f"plan.{ending}"
    printed(f"memory {model} --inference --output {path}")
    data = path.read_bytes()
    assert data.startswith({"svg": b"<svg", "html": b"<!doctype html>", "png": b"\x89PNG"}[ending])
    if ending != "png":
        drawn = ElementTree.fromstring(data[data.index(b"<svg") : data.index(b"</svg>") + 6])
        bars = [box.text for box in drawn.iter() if box.tag.endswith("title")]
        assert any(str(bar).startswith("weights: 128 B") for bar in bars)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nowhere.onnx", "'nowhere.onnx' is neither a model name nor a file"),
        ("MODEL", "add --loss with the id of a tensor (its outputs are y, loss), or --inference"),
        ("MODEL --loss y", "Loss tensor, 'y', must be a scalar tensor"),
        ("MODEL --loss z", "'z'"),
        ("JUNK --inference", "Failed to load a ModelProto from the string"),
        ("MODEL --inference --output plan.gif", "pictures are .svg, .html or .png"),
        ("MODEL --inference --output /nowhere/plan.svg", "cannot be written: No such file or directory"),
        ("mlp --replicas 32", "32 replicas of 1 IPU requested; Pod16 has 16 IPUs"),
        ("mlp --replicas 5 --ipus 3", "5 replicas of 3 IPUs (which take 4) requested"),
        ("mlp --ipus 32 --system pod64", "32 IPUs per replica requested; use at most 16"),
        ("mlp --system pod3", "--system pod3: there is no such system"),
    ],
)
def test_mistakes(model: str, tmp_path: Path, words: str, message: str) -> None:
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"no model" * 99)
    done = ipu_emu(f"memory {words}".replace("MODEL", model).replace("JUNK", str(junk)))
    assert done.exit_code == 2
    assert message in done.stderr


def test_weights_take_no_disk_but_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10**6))
    done = ipu_emu("memory resnet8 --inference")
    assert done.exit_code == 0
    done = ipu_emu("memory gpt2-xl --dtype float")
    assert done.exit_code == 2
    assert "compiling weights of 5.81 GiB takes 11.6 GiB of memory, but only 977 KiB are free" in done.stderr


def test_a_file_without_outputs_ends_at_unused_tensors(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    path.write_bytes(named("mlp", batch=8).proto)
    assert "(its outputs are Nll:0)" in ipu_emu(f"memory {path}").stderr
    assert "inference, micro-batches of 8\n" in printed(f"memory {path} --inference")


def test_only_the_batch_may_have_no_size(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "length"])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "open", [value], [value])
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph), path)
    done = ipu_emu(f"memory {path} --inference")
    assert done.exit_code == 2
    assert "has no size in dimension 1; only the first one, the batch, may be open" in done.stderr


@pytest.mark.parametrize("command", ["memory", "clock", "compile", "predict"])
def test_data_outside_of_the_folder_of_a_file_are_refused(tmp_path: Path, command: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "private").write_bytes(bytes(16))
    weight = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="../private")
    x, y = (helper.make_tensor_value_info(id, TensorProto.FLOAT, [2, 4]) for id in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "outside", [x], [y], [weight])
    path = tmp_path / "model" / "model.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    done = ipu_emu(f"{command} {path} --inference")
    assert done.exit_code == 2
    assert "its location '../private' is not in the folder of the model" in done.stderr


def test_the_page_of_a_plan_has_its_numbers_and_remedies(tmp_path: Path) -> None:
    page, words = tmp_path / "plan.html", "mlp --batch 300000 --inference"
    said = printed(f"memory {words} --output {page}")
    text = page.read_text()
    header, row = (re.findall(r"<t[dh]>(?:<b>)?(.*?)(?:</b>)?</t[dh]>", line) for line in text.split("<tr>")[1:3])
    (ipu,) = json.loads(printed(f"memory {words} --format json"))["ipus"]
    shown = dict(zip(header, row, strict=True))
    assert shown["total"] == memory(ipu["bytes"])
    assert {part: shown[part] for part in ipu["parts"]} == {
        part: memory(nbytes) if nbytes else "-" for part, nbytes in ipu["parts"].items()
    }
    assert "memory of an IPU: 897 MiB" in text
    remedies = said[said.index("data per replica") :].strip().splitlines()
    noted = unescape(text[text.index("<pre>") + 5 : text.index("</pre>")]).strip().splitlines()
    assert noted == remedies[: len(noted)]
    assert any("suffice" in line for line in noted)
    assert not re.search(r'(?:src|href)="http', text)


@pytest.mark.parametrize("command", ["memory", "clock", "compile"])
def test_an_input_without_elements_is_refused_and_a_weight_without_them_costs_nothing(
    tmp_path: Path, command: str
) -> None:
    for rows, width, said in ((0, 4, "input 'x' of"), (2, 0, "")):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, width])
        weight = numpy_helper.from_array(np.ones((4, width), np.float32), "w")
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
        path = tmp_path / "model.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=7), path)
        done = ipu_emu(f"{command} {path} --inference")
        assert done.exit_code == (2 if said else 0), done.output
        assert said in done.output
        assert ("its shape is [0, 4]; export the model with sizes from 1" in done.output) is bool(said)
