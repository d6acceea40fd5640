"""ipu-emu schedule: every stage and task of a schedule as text, SVG and JSON."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from ipu_emu.program.schedules import TaskType, schedule
from tests.ipu_emu.helpers.commands import ipu_emu, printed


@pytest.mark.parametrize("kind", ["grouped", "interleaved", "sequential", "popart"])
def test_json_is_what_the_compiler_uses(kind: str) -> None:
    said = json.loads(printed(f"schedule --kind {kind} --stages 3 --count 6 --format json"))
    assert said == [
        [{"ipu": t.ipu, "stage": t.stage, "micro_batch": t.micro_batch, "what": t.what} for t in slot]
        for slot in schedule(kind, 3, 6, training=True)
    ]


def test_text() -> None:
    said = printed("schedule --kind interleaved --stages 2 --count 2")
    assert re.findall(r"IPU \d .*", said) == [
        "IPU 0    F0 ·  F1 B0 ·  B1",
        "IPU 1    ·  F0 B0 F1 B1 · ",
    ]
    assert "6 slots: ramp-up 2, main 2, ramp-down 2\nat most 2 micro-batches in flight\n" in said


@pytest.mark.parametrize(("kind", "latency"), [("grouped", 23), ("interleaved", 16)])
def test_ramps_use_half_of_the_ipus_and_latency_is_that_of_a_micro_batch(kind: str, latency: int) -> None:
    said = printed(f"schedule --kind {kind} --stages 4 --count 16")
    assert "ramp-up uses 50% of the IPUs, main 100%, ramp-down 50%" in said
    assert f"a micro-batch takes {latency} time units, first task to last" in said


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("grouped", "one enters and one leaves in each slot"), ("interleaved", "enter a FIFO when none leaves")],
)
def test_fifos_for_values_that_pass_through(kind: str, reason: str) -> None:
    """From stage 0 to stage 3, a value enters when the one works and leaves when the other does."""
    assert reason in printed(f"schedule --kind {kind} --stages 4 --count 16")
    slots = list(schedule(kind, 4, 16, training=True))
    both = [len({task.stage for task in slot if task.stage in (0, 3)}) for slot in slots[8:-14]]
    assert set(both) == ({2} if kind == "grouped" else {1})


def test_a_stage_on_all_ipus_runs_alone() -> None:
    """IPUs 0 and 1 wait for the third stage, which keeps both busy."""
    said = printed("schedule --kind grouped --stages 3 --count 3 --mapping 0,1,-1 --inference")
    assert "all IPUs" in said
    total, busy = 1 + 1 + 2 + 2 + 1, 3 * (1 + 1 + 2)
    assert f"efficiency {busy / (2 * total):.1%} over {total} time units" in said


def test_a_stage_with_concurrent_parts() -> None:
    said = printed("schedule --kind grouped --stages 3 --count 3 --mapping 0,1+2,3 --inference")
    rows = [row.split()[2:] for row in re.findall(r"IPU \d .*", said)]
    assert rows[1] == rows[2] == ["·", "F0", "F1", "F2", "·"]
    assert "1  1,2" in said


def test_boxes_are_as_long_as_their_tasks() -> None:
    words = "--kind interleaved --stages 2 --count 4 --forward 1,2 --backward 3,4"
    drawn = ElementTree.fromstring(printed(f"schedule {words} --format svg"))
    widths: dict[str, set[float]] = {}
    for box in drawn.iter():
        title = next((node for node in box if node.tag.endswith("title")), None)
        if title is not None and "of stage" in str(title.text):
            work = str(title.text).partition(": ")[2].partition(", ")[0]
            widths.setdefault(work, set()).add(round(float(str(box.get("width"))) + 1, 0))
    (unit,) = widths["forward of stage 0"]
    assert {work: [round(width / unit) for width in lengths] for work, lengths in widths.items()} == {
        "forward of stage 0": [1],
        "forward of stage 1": [2],
        "backward of stage 2": [4],
        "backward of stage 3": [3],
    }
    said = next(node.text for node in drawn.iter() if "bubble" in str(node.text))
    efficiency = re.search(r"modelled efficiency (\S+)% over", printed(f"schedule {words}"))
    assert efficiency
    assert f"efficiency {efficiency[1]}%, bubble {100 - float(efficiency[1]):.1f}%" in str(said)


@pytest.mark.parametrize("words", ["--kind popart --stages 4 --count 16", "--stages 8 --count 64 --recompute"])
def test_svg_has_a_box_for_each_task(words: str) -> None:
    drawn = ElementTree.fromstring(printed(f"schedule {words} --format svg"))
    tasks = [box for box in drawn.iter() if box.tag.endswith("title") and "micro-batch" in str(box.text)]
    slots = json.loads(printed(f"schedule {words} --format json"))
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
        ("--stages 2 --count 4 --mapping 0,9999999999", "use an IPU from 0 to 65,535"),
        ("--kind interleaved --stages 2 --count 4 --mapping 0,0", "does not currently support multiple pipeline"),
        ("--stages 2 --count 4 --forward 1", "--forward has 1 times for 2 stages; give one per stage"),
        ("--stages 2 --count 4 --forward 0,0", "that of some stage above 0"),
        ("--stages 2 --count 4 --inference --recompute", "inference keeps no activations to recompute"),
        ("--stages 3 --count 99999", "use at most 6666 micro-batches"),
        ("--stages 0 --count 4", "Invalid value for '--stages'"),
    ],
)
def test_mistakes(words: str, message: str) -> None:
    done = ipu_emu(f"schedule {words}")
    assert done.exit_code == 2
    assert message in done.stderr


def test_the_legend_of_a_schedule_has_only_what_is_drawn() -> None:
    picture = ElementTree.fromstring(printed("schedule --kind popart --stages 2 --count 4 --format svg"))
    texts = {node.text for node in picture.iter() if node.tag.endswith("text")}
    assert texts & {kind.value for kind in TaskType} == {"forward", "backward", "forward+backward"}
