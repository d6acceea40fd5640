"""ipu-emu: what each command prints, what it writes, and what it says of mistakes."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from gcl.drawing.units import counted, decimal, memory
from ipu_emu.cli import main
from ipu_emu.compiler.pipeline import PASSES
from ipu_emu.hardware import GC200
from ipu_emu.models import named
from ipu_emu.program.schedules import TaskType, schedule


def ipu_emu(words: str, **environ: str) -> Result:
    return CliRunner().invoke(main, words.split(), env=environ, catch_exceptions=False)


def told(words: str, **environ: str) -> str:
    done = ipu_emu(words, **environ)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A file whose batch is open: y = x w, loss = mean of y."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4]),
        helper.make_tensor_value_info("loss", TensorProto.FLOAT, []),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["loss"], keepdims=0),
    ]
    weights = [numpy_helper.from_array(np.ones((8, 4), np.float32), "w")]
    graph = helper.make_graph(nodes, "model", inputs, outputs, weights)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=7), path)
    return str(path)


@pytest.mark.parametrize("command", ["", "clock", "compile", "hostio", "info", "memory", "models", "schedule"])
def test_help(command: str) -> None:
    said = told(f"{command} --help")
    assert "ipu-emu" in said
    assert max(map(len, said.splitlines())) <= 118


@pytest.mark.parametrize("command", ["clock", "compile", "hostio", "memory", "schedule"])
def test_missing_arguments(command: str) -> None:
    done = ipu_emu(command)
    assert done.exit_code == 2
    assert "Error: Missing" in done.stderr


def test_units() -> None:
    assert [memory(n) for n in (0, 1023, 1024, 3.1 * 2**20, 941 * 2**20, 2**40)] == [
        "0 B", "1,023 B", "1.00 KiB", "3.10 MiB", "941 MiB", "1.00 TiB",
    ]  # fmt: skip
    assert [decimal(n, "FLOP") for n in (999, 1.3e6, 8.284e9, 35.38e9)] == [
        "999 FLOP", "1.30 MFLOP", "8.28 GFLOP", "35.4 GFLOP",
    ]  # fmt: skip
    assert [counted(n, "micro-batch") for n in (1, 2)] == ["1 micro-batch", "2 micro-batches"]


class TestSchedule:
    @pytest.mark.parametrize("kind", ["grouped", "interleaved", "sequential", "popart"])
    def test_json_is_what_the_compiler_uses(self, kind: str) -> None:
        said = json.loads(told(f"schedule --kind {kind} --stages 3 --count 6 --format json"))
        assert said == [
            [{"ipu": t.ipu, "stage": t.stage, "micro_batch": t.micro_batch, "what": t.what} for t in slot]
            for slot in schedule(kind, 3, 6, training=True)
        ]

    def test_text(self) -> None:
        said = told("schedule --kind interleaved --stages 2 --count 2")
        assert re.findall(r"IPU \d .*", said) == [
            "IPU 0    F0 ·  F1 B0 ·  B1",
            "IPU 1    ·  F0 B0 F1 B1 · ",
        ]
        assert "6 slots: ramp-up 2, main 2, ramp-down 2\nat most 2 micro-batches in flight\n" in said

    def test_a_stage_on_all_ipus_runs_alone(self) -> None:
        """IPUs 0 and 1 wait for the third stage, which keeps both busy."""
        said = told("schedule --kind grouped --stages 3 --count 3 --mapping 0,1,-1 --inference")
        assert "all IPUs" in said
        total, busy = 1 + 1 + 2 + 2 + 1, 3 * (1 + 1 + 2)
        assert f"efficiency {busy / (2 * total):.1%} over {total} time units" in said

    def test_a_stage_with_concurrent_parts(self) -> None:
        said = told("schedule --kind grouped --stages 3 --count 3 --mapping 0,1+2,3 --inference")
        rows = [row.split()[2:] for row in re.findall(r"IPU \d .*", said)]
        assert rows[1] == rows[2] == ["·", "F0", "F1", "F2", "·"]
        assert "1  1,2" in said

    def test_boxes_are_as_long_as_their_tasks(self) -> None:
        words = "--kind interleaved --stages 2 --count 4 --forward 1,2 --backward 3,4"
        drawn = ElementTree.fromstring(told(f"schedule {words} --format svg"))
        widths: dict[str, set[float]] = {}
        for box in drawn.iter():
            title = next((each for each in box if each.tag.endswith("title")), None)
            if title is not None and "of stage" in str(title.text):
                work = str(title.text).partition(": ")[2].partition(", ")[0]
                widths.setdefault(work, set()).add(round(float(str(box.get("width"))) + 1, 0))
        (unit,) = widths["forward of stage 0"]
        assert {work: [round(width / unit) for width in found] for work, found in widths.items()} == {
            "forward of stage 0": [1],
            "forward of stage 1": [2],
            "backward of stage 2": [4],
            "backward of stage 3": [3],
        }
        said = next(node.text for node in drawn.iter() if "bubble" in str(node.text))
        efficiency = re.search(r"modelled efficiency (\S+)% over", told(f"schedule {words}"))
        assert efficiency
        assert f"efficiency {efficiency[1]}%, bubble {100 - float(efficiency[1]):.1f}%" in str(said)

    @pytest.mark.parametrize("words", ["--kind popart --stages 4 --count 16", "--stages 8 --count 64 --recompute"])
    def test_svg_has_a_box_for_each_task(self, words: str) -> None:
        drawn = ElementTree.fromstring(told(f"schedule {words} --format svg"))
        tasks = [box for box in drawn.iter() if box.tag.endswith("title") and "micro-batch" in str(box.text)]
        slots = json.loads(told(f"schedule {words} --format json"))
        assert len(tasks) == sum(map(len, slots))

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--stages 4 --count 7", "The number of iterations of the pipeline must be at least 8, but it is 7"),
            ("--stages 4 --count 12", "must be a multiple of 8, but it is 12. Use a count of 8 or 16"),
            ("--kind popart --stages 2 --count 2", "For pipelining, depth (gradient accumulation factor) must equal"),
            ("--stages 3 --count 6 --mapping 0,1", "Each stage must be mapped to an IPU: 2 mappings != 3 stages"),
            ("--stages 2 --count 4 --mapping 0,x", "--mapping x: not a list of numbers; use for example 0,1,2"),
            ("--stages 2 --count 4 --mapping 0,1+", "--mapping 1,: not a list of numbers"),
            ("--stages 2 --count 4 --mapping 0,1+1", "stage 1 is mapped to [1, 1]"),
            ("--stages 2 --count 4 --mapping 0,-2", "stage 1 is mapped to -2"),
            ("--kind interleaved --stages 2 --count 4 --mapping 0,0", "does not currently support multiple pipeline"),
            ("--stages 2 --count 4 --forward 1", "--forward has 1 times for 2 stages; give one per stage"),
            ("--stages 2 --count 4 --forward 0,0", "that of some stage above 0"),
            ("--stages 2 --count 4 --inference --recompute", "inference keeps no activations to recompute"),
            ("--stages 3 --count 99999", "use at most 6666 micro-batches"),
            ("--stages 0 --count 4", "Invalid value for '--stages'"),
        ],
    )
    def test_mistakes(self, words: str, message: str) -> None:
        done = ipu_emu(f"schedule {words}")
        assert done.exit_code == 2
        assert message in done.stderr


class TestInfo:
    @pytest.mark.parametrize("name", ["pod4", "bow-pod64", "4xpod16", "c2", "dss8440"])
    def test_all_ipus_are_drawn(self, name: str) -> None:
        facts = json.loads(told(f"info --system {name} --format json"))
        drawn = told(f"info --system {name}")
        machines = re.sub(r"\A.*machine  domain|tiles .*", "", drawn, flags=re.DOTALL)
        shown = {int(word) for word in re.findall(r"(?<=[ ═])\d+(?= *(?:═|$| {3}))", machines, flags=re.MULTILINE)}
        assert set(range(facts["ipus"])) <= shown
        assert [place["ipu"] for place in facts["placement"]] == list(range(facts["ipus"]))

    def test_the_environment_names_the_system(self) -> None:
        assert told("info", IPU_EMU_SYSTEM="bow-pod64").startswith("Bow Pod64   64 Bow IPUs")

    def test_mistakes(self) -> None:
        done = ipu_emu("info --system pod12")
        assert (done.exit_code, done.stderr.split(";")[0]) == (2, "Error: --system pod12: there is no such system")

    def test_a_wrong_environment(self) -> None:
        done = ipu_emu("info", POPDIST_NUM_TOTAL_REPLICAS="many")
        assert (done.exit_code, "'many' is not a whole number" in done.stderr) == (2, True)

    def test_old_terminals(self) -> None:
        done = CliRunner(charset="ascii").invoke(main, ["info"])
        assert (done.exit_code, b"0 ??  1" in done.stdout_bytes) == (0, True)


class TestModels:
    def test_numbers_say_something(self) -> None:
        (line,) = (line for line in told("models mlp").splitlines() if line.startswith("mlp"))
        assert line.split()[:8] == ["mlp", "669,706", "-", "-", "1.34", "MFLOP", "4.04", "KiB"]

    def test_json(self) -> None:
        (facts,) = json.loads(told("models bert-base --format json"))
        assert facts["parameters"] == 109_482_240

    def test_mistakes(self) -> None:
        done = ipu_emu("models alexnet")
        assert (done.exit_code, done.stderr.split(";")[0]) == (2, "Error: there is no model 'alexnet'")


class TestMemory:
    def test_parts_add_up(self, model: str) -> None:
        facts = json.loads(told(f"memory {model} --loss loss --optimiser momentum --format json"))
        (ipu,) = facts["ipus"]
        assert ipu["bytes"] == sum(ipu["parts"].values())
        assert ipu["parts"]["weights"] == 8 * 4 * 4
        assert ipu["parts"]["optimiser states"] >= 8 * 4 * 4
        assert facts["sram_bytes_per_ipu"] == GC200.sram

    def test_streaming_memory_is_shown_apart(self, model: str) -> None:
        command = f"memory {model} --loss loss --optimiser momentum --off-chip states"
        (ipu,) = json.loads(told(f"{command} --format json"))["ipus"]
        assert ipu["parts"]["optimiser states"] == 0
        assert ipu["streaming_bytes"] >= 8 * 4 * 4
        assert ipu["bytes"] == sum(ipu["parts"].values())
        assert "Streaming" in told(f"{command} --recompute --replicas 2 --shared states")

    def test_every_kind_of_recomputation(self) -> None:
        command = "transformer --batch 4 --ipus 2 --schedule popart --accumulation 4 --format json"
        stashes = {}
        for words in ("", "--recompute", "--recompute standard", "--recompute=NormOnly", "--recompute recomputeall"):
            facts = json.loads(told(f"memory {words} {command}"))
            stashes[words] = sum(ipu["parts"]["stashes"] for ipu in facts["ipus"])
        plain, alone, standard, norms, everything = stashes.values()
        assert everything < alone == standard < norms < plain
        assert "recomputation (Pipeline)" in told("memory mlp --ipus 2 --recompute pipeline")
        assert "'mlp' is not one of" not in told("clock --recompute mlp")

    def test_warnings_are_a_line_each(self) -> None:
        done = ipu_emu("memory mlp --optimiser momentum --shared states")
        assert done.stderr == "Warning: Replicated tensor sharding has no effect: there is one replica\n"

    def test_the_plan_stands_beside_the_estimate(self, model: str) -> None:
        facts = json.loads(told("memory mlp --batch 8 --dtype float --optimiser adam --accumulation 2 --format json"))
        held = facts["ipus"][0]["parts"]
        data = sum(held.values()) - held["code"] - held["vertices"] - held["exchange"]
        assert facts["estimated_bytes"] <= data * 1.01 <= 1.3 * facts["estimated_bytes"]
        assert "estimated by formula" in told("memory resnet8 --inference")
        assert "estimated by formula" not in told(f"memory {model} --inference")

    def test_accumulators_go_off_chip(self, model: str) -> None:
        command = f"memory {model} --loss loss --accumulation 4 --format json"
        (near,), (far,) = (json.loads(told(command + more))["ipus"] for more in ("", " --off-chip accumulators"))
        assert near["streaming_bytes"] == 0
        assert far["streaming_bytes"] >= 8 * 4 * 4

    def test_inputs_wait_in_streaming_memory(self, model: str) -> None:
        command = f"{model} --loss loss --prefetch 3 --format json"
        (ipu,) = json.loads(told(f"memory {command}"))["ipus"]
        assert ipu["streaming_bytes"] > 0
        assert "prefetch into Streaming Memory" in told(f"clock {model} --loss loss --prefetch 3")

    def test_an_open_batch_is_filled(self, model: str) -> None:
        for batch in (1000, 2000):
            said = told(f"memory {model} --inference --batch {batch}")
            assert f"micro-batches of {batch}\n" in said
            assert f"{memory(batch * 8 * 4)}  x" in said

    def test_an_ipu_per_bar(self) -> None:
        said = told("memory mlp --ipus 2 --schedule popart --accumulation 4 --system bow-pod16")
        bars = re.findall(r"IPU (\d) +[A-Z·]+ +[\d.]+ [KM]iB of 897 MiB, [\d.]+%", said)
        assert bars == ["0", "1"]

    def test_a_remedy_is_the_flags_with_which_the_model_fits(self) -> None:
        said = told("memory mlp --batch 300000 --inference")
        assert "does not fit" in said
        _, _, found = said.partition("\nRemedies, each of which suffices:\n  ")
        flags, _, need = found.strip().rpartition(": ")
        assert flags == "--batch 150000 --accumulation 2"
        again = told(f"memory mlp --inference {flags}")
        assert "does not fit" not in again
        assert need.split(" of ")[0] in again

    def test_micro_batches_of_a_file_are_its_own(self, tmp_path: Path) -> None:
        path = tmp_path / "mlp.onnx"
        path.write_bytes(named("mlp", batch=200_000, dtype=np.float32).proto)
        said = told(f"memory {path} --inference")
        assert "No known remedy suffices. The one that saves the most is\n  --ipus 4: 1.57 GiB of 897 MiB" in said
        assert "--batch" not in said

    @pytest.mark.parametrize("ending", ["svg", "html", "png"])
    def test_pictures(self, model: str, tmp_path: Path, ending: str) -> None:
        if ending == "png":
            pytest.importorskip("matplotlib")
        path = tmp_path / f"plan.{ending}"
        told(f"memory {model} --inference --output {path}")
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
    def test_mistakes(self, model: str, tmp_path: Path, words: str, message: str) -> None:
        junk = tmp_path / "junk.onnx"
        junk.write_bytes(b"no model" * 99)
        done = ipu_emu(f"memory {words}".replace("MODEL", model).replace("JUNK", str(junk)))
        assert done.exit_code == 2
        assert message in done.stderr

    def test_weights_take_no_disk_but_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10**6))
        done = ipu_emu("memory resnet8 --inference")
        assert done.exit_code == 0
        done = ipu_emu("memory gpt2-xl --dtype float")
        assert done.exit_code == 2
        assert "compiling weights of 5.81 GiB takes 11.6 GiB of memory, but only 977 KiB are free" in done.stderr

    def test_a_file_without_outputs_ends_at_unused_tensors(self, tmp_path: Path) -> None:
        path = tmp_path / "mlp.onnx"
        path.write_bytes(named("mlp", batch=8).proto)
        assert "(its outputs are Nll:0)" in ipu_emu(f"memory {path}").stderr
        assert "inference, micro-batches of 8\n" in told(f"memory {path} --inference")

    def test_only_the_batch_may_be_open(self, tmp_path: Path) -> None:
        value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "length"])
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "open", [value], [value])
        path = tmp_path / "open.onnx"
        onnx.save(helper.make_model(graph), path)
        done = ipu_emu(f"memory {path} --inference")
        assert done.exit_code == 2
        assert "has no size in dimension 1; only the first one, the batch, may be open" in done.stderr


def test_the_page_of_a_plan_has_its_numbers_and_remedies(tmp_path: Path) -> None:
    page, words = tmp_path / "plan.html", "mlp --batch 300000 --inference"
    said = told(f"memory {words} --output {page}")
    text = page.read_text()
    header, row = (re.findall(r"<t[dh]>(?:<b>)?(.*?)(?:</b>)?</t[dh]>", line) for line in text.split("<tr>")[1:3])
    (ipu,) = json.loads(told(f"memory {words} --format json"))["ipus"]
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


class TestClock:
    def facts(self, words: str) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(told(f"clock {words} --format json"))
        return made

    def test_a_step(self) -> None:
        words = "mlp --batch 4 --accumulation 3 --replicas 2"
        facts = self.facts(words)
        assert facts["samples"] == 4 * 3 * 2
        assert facts["modelled_cycles"] == round(facts["modelled_seconds"] * GC200.clock)
        assert sum(facts["busy_seconds_by_kind"].values()) == pytest.approx(facts["modelled_seconds"])
        assert facts["busy_seconds_by_kind"]["collectives"] > 0
        shown = told(f"clock {words}")
        assert f"{facts['modelled_cycles']:,} cycles" in shown
        assert shown.rstrip().splitlines()[-1] == "share of the step: IPU 0 100.0%"

    def test_a_step_that_fits_no_ipu_is_marked(self) -> None:
        words = "mlp --batch 300000 --inference"
        assert "\nDOES NOT FIT: 136%, 1.19 GiB of 897 MiB on IPU 0" in told(f"clock {words}")
        assert self.facts(words)["memory"] == {"fits": False, "bytes": ANY, "limit_bytes": GC200.sram}
        assert self.facts("mlp --inference")["memory"]["fits"]

    def test_a_step_of_milliseconds_is_not_in_microseconds(self) -> None:
        facts = self.facts("resnet50 --batch 4 --accumulation 12")
        assert facts["modelled_seconds"] > 0.01
        shown = told("clock resnet50 --batch 4 --accumulation 12")
        assert f"modelled step {1000 * facts['modelled_seconds']:.1f} ms = " in shown

    @pytest.mark.parametrize("release", ["2.1", "2.3"])
    def test_a_large_step_takes_what_the_closed_form_says(self, release: str) -> None:
        words = f"resnet50 --batch 16 --replicas 16 --accumulation 2 --optimiser momentum --release {release}"
        facts = self.facts(words)
        assert facts["modelled_seconds"] == pytest.approx(facts["predicted"]["step_seconds"], rel=0.05)
        terms = facts["predicted"]["terms_seconds"]
        collectives = terms["ipu_links"] + terms["fixed"]
        assert facts["busy_seconds_by_kind"]["collectives"] == pytest.approx(collectives, rel=0.01)
        assert facts["busy_seconds_by_kind"]["host I/O"] == pytest.approx(terms["host"], rel=0.01)

    def test_nominal_rates_are_faster(self) -> None:
        words = "mlp --batch 512 --replicas 4 --accumulation 3"
        assert self.facts(f"{words} --calibration none")["modelled_seconds"] < self.facts(words)["modelled_seconds"]

    def test_timelines_are_drawn_and_traced(self, tmp_path: Path) -> None:
        words = "mlp --ipus 2 --schedule popart --accumulation 4"
        svg, trace = tmp_path / "t.svg", tmp_path / "t.json"
        told(f"clock {words} --output {svg}")
        made = self.facts(f"{words} --output {trace}")
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
        assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(made["modelled_seconds"] * 1e6)
        tasks = [event for event in events if event["cat"] in {"forward", "backward", "forward+backward"}]
        assert len(tasks) == 3 * 4
        boxes = [str(b.text) for b in ElementTree.fromstring(svg.read_text()).iter() if b.tag.endswith("title")]
        assert sum("of stage" in box for box in boxes) == 3 * 4
        done = ipu_emu(f"clock {words} --output {tmp_path}/t.png")
        assert (done.exit_code, "timelines are .svg or .json" in done.stderr) == (2, True)

    def test_an_inference_pipeline(self) -> None:
        words = "mlp --ipus 2 --schedule interleaved --accumulation 8 --inference"
        assert self.facts(words)["samples"] == 8
        assert "inference, micro-batches of 1, 8 per step" in told(f"clock {words}")

    def test_a_file(self, model: str) -> None:
        assert self.facts(f"{model} --inference --batch 5")["samples"] == 5

    def test_odd_numbers_leave_ipus_idle(self) -> None:
        facts = self.facts("mlp --ipus 3 --replicas 3 --accumulation 2")
        assert 0 < facts["modelled_seconds"] < 1

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("mlp --release 9", "release '9' is unknown; use 2.1, 2.3"),
            ("mlp --replicas 17", "17 replicas of 1 IPU requested; Pod16 has 16 IPUs"),
            ("mlp --ipus 2 --schedule grouped --accumulation 3", "must be at least 4, but it is 3"),
        ],
    )
    def test_mistakes(self, words: str, message: str) -> None:
        done = ipu_emu(f"clock {words}")
        assert done.exit_code == 2
        assert message in done.stderr


class TestCompile:
    def test_the_list_has_a_line_for_each_pass(self) -> None:
        said = [line.split() for line in told("compile --list").splitlines()]
        assert [words[1] for words in said] == [one.name for one in PASSES]
        assert all(len(words) > 3 for words in said)

    @pytest.mark.parametrize(
        ("words", "shows"),
        [
            ("--stop-after expand", "forward   IPU 0  stage 0  y = MatMul(x, w)"),
            ("--stop-after differentiate", "Gradient___w = MatMulT("),
            ("--stop-after lower", "  Compute y = MatMul(x, w)"),
            ("", "persistent"),
        ],
    )
    def test_the_output_of_a_pass(self, model: str, words: str, shows: str) -> None:
        assert any(shows in line for line in told(f"compile {model} --loss loss {words}").splitlines())

    def test_the_plan_has_a_line_for_each_tensor(self) -> None:
        said = told("compile mlp --ipus 2 --schedule grouped --accumulation 4 --replicas 2").split("\n\n")
        regions, places = ([line.split() for line in part.strip().splitlines()[1:]] for part in said[-2:])
        assert ["bucket:FLOAT16:all:0:1", "1", "523", "KiB"] in [words[:4] for words in regions]
        (weights,) = [words for words in places if words[-1] == "weights2"]
        assert weights[:2] == ["persistent:1", "1"]
        assert weights[3:5] == ["10.0", "KiB"]
        starts = {line.index(" KiB") for line in said[-2].splitlines() if " KiB" in line}
        assert len(starts) == 1

    def test_a_pass_that_the_options_do_not_need(self, model: str) -> None:
        said = told(f"compile {model} --inference --stop-after clip-gradients")
        assert (
            "after clip-gradients (limit the norms of groups of gradients), which these options do not need" in said
        )
        assert "Gradient___" not in said

    def test_a_pass_that_there_is_not(self, model: str) -> None:
        done = ipu_emu(f"compile {model} --stop-after fold")
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr == "Error: 'fold' is not a pass of the compiler; ipu-emu compile --list names all\n"
        assert "pass of the compiler; did you mean 'lower'?" in ipu_emu(f"compile {model} --stop-after lowr").stderr

    @pytest.mark.parametrize("words", ["--list --format json", "--format json --list"])
    def test_the_list_as_json(self, words: str) -> None:
        said = json.loads(told(f"compile {words}"))
        assert said == [{"name": one.name, "summary": one.summary} for one in PASSES]

    def test_json(self, model: str) -> None:
        said = json.loads(told(f"compile {model} --inference --stop-after lower --format json"))
        assert said["passes"][-1] == "lower"
        assert said["form"] == "program"
        assert "HostLoad x" in said["listing"]


def test_the_legend_of_a_schedule_has_only_what_is_drawn() -> None:
    picture = ElementTree.fromstring(told("schedule --kind popart --stages 2 --count 4 --format svg"))
    texts = {node.text for node in picture.iter() if node.tag.endswith("text")}
    assert texts & {each.value for each in TaskType} == {"forward", "backward", "forward+backward"}
