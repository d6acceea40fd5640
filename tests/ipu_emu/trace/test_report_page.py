"""The page of a run in a real browser: no network, the numbers of the JSON, zoom, search and selection."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.cli.output.run_report import report_page
from ipu_emu.cli.output.run_report.charts import library
from ipu_emu.cli.output.run_report.report_page import all_charts, report_html
from ipu_emu.hardware import Device, DeviceKind, System
from ipu_emu.program.clock.modelled_step import ModelledStep
from ipu_emu.session.program_profile import program_profile
from ipu_emu.trace import read_run
from ipu_emu.trace.findings import analyse
from ipu_emu.trace.report_data import report_data
from ipu_emu.trace.time_use import IMPORTS, OTHER
from ipu_emu.trace.timelines.lanes import packed_lanes
from popdist_py.trace import PROFILE_SUFFIX, Category, Kind, Recorder
from popdist_py.trace.records import CATEGORIES, key_of

SPANS, OPS = 300, ("Conv", "Relu")

READY = """const done = arguments[0], look = () => document.body.dataset.ready ? done() : setTimeout(look, 20);
look()"""
#: Done when all charts of the current tab are drawn, each with its full width.
DRAWN = """const done = arguments[0], fits = place => place.dataset.drawn
    && Math.abs(place.querySelector(".main-svg").clientWidth - place.clientWidth) <= 1;
const all = () => [...document.querySelectorAll("section:not([hidden]) .chart")].every(fits);
const look = () => all() ? done() : setTimeout(look, 20);
look()"""
CELLS = """return [...document.querySelectorAll(`#${arguments[0]} tr`)]
    .map(row => [...row.cells].map(cell => cell.textContent))"""
#: For every visible chart: its figure, the drawn values, and the number of bars.
SHOWN = """return [...document.querySelectorAll("section:not([hidden]) .chart")].map(place => ({
    figure: place.dataset.figure, bars: place.querySelectorAll(".bars .point").length,
    values: place.data.map(({x, y, base}) => JSON.parse(JSON.stringify({x, y, base})))}))"""
#: Widths of the boxes of a chart by the name of their trace.
BOXES = """const place = document.getElementById(arguments[0]);
return Object.fromEntries([...place.querySelectorAll(".bars")].map((bars, number) => [place.data[number].name,
    [...bars.querySelectorAll(".point path")].map(path => path.getBBox().width)]))"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two instances with steps of two ops and a collective, of known times."""
    path = tmp_path_factory.mktemp("page") / "</script><b>run"
    for instance in range(2):
        about = {
            "pid": 100 + instance,
            "host": "h",
            "boot": "b",
            "environment": {"POPDIST_REPLICA_INDEX_OFFSET": str(instance)},
        }
        recorder = Recorder(str(path), limit=64 << 20, about=about)
        step = recorder.name("step", Category.COMPUTE)
        ipu = recorder.track(f"replica {instance}, IPU 0", replica=instance, ipu=0)
        ops = [recorder.name(op, Category.COMPUTE, instruction="Compute", output=op.lower()) for op in OPS]
        reduce = recorder.name("all_reduce", Category.COLLECTIVES, communicator=0, bytes=4096, operator="add")
        message = recorder.name("message")
        for number in range(SPANS):
            start = 1_000_000 + 100_000 * number
            recorder.record(key_of(Kind.SPAN, step), start, start + 90_000)
            end = Kind.FLOW_IN if instance else Kind.FLOW_OUT
            at = start + 5_000 + 10_000 * instance
            recorder.record(key_of(end, message), at, at, number)
            recorder.record(key_of(Kind.SPAN, ops[0], ipu), start, start + 30_000, number)
            end = start + 40_000 + 10_000 * instance
            recorder.record(key_of(Kind.SPAN, ops[1], ipu), start + 30_000, end, number)
            recorder.record(key_of(Kind.SPAN, reduce), start + 40_000 + 10_000 * instance, start + 90_000, number)
        recorder.close()
    executable = CompileRequest("mlp", ipus=2, accumulation=4, schedule="popart").compiled(System.pod(16)).executable
    step = ModelledStep(executable, Device(DeviceKind.IPU, 0, 4, 1472, "ipu2"), 2, 2)
    (path / f"100.0{PROFILE_SUFFIX}").write_text(json.dumps(program_profile(step, "training")))
    return path


@pytest.fixture(scope="module")
def data(folder: Path) -> dict[str, Any]:
    return report_data(analyse(read_run(folder)))


@pytest.fixture(scope="module")
def browser(folder: Path, data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium, to drive a browser")
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    page = tmp_path_factory.mktemp("html") / "run.html"
    page.write_bytes(report_html(analyse(read_run(folder)), data))
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    flags = (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "disable-background-networking",
        "window-size=1400,900",
    )
    for flag in flags:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.set_network_conditions(offline=True, latency=0, throughput=0)
        driver.get(page.as_uri())
        driver.set_script_timeout(60)
        driver.execute_async_script(READY)
        yield driver
    finally:
        driver.quit()


def cells(browser: Any, table: str) -> list[list[str]]:
    """The texts of a table, without those of its head."""
    rows: list[list[str]] = browser.execute_script(CELLS, table)
    return rows if table == "details" else rows[1:]


def opened(browser: Any, tab: str) -> None:
    """Show a tab, with its charts."""
    browser.find_element("css selector", f"[data-tab={tab}]").click()
    browser.execute_async_script(DRAWN)


def test_the_numbers_of_the_page_are_those_of_the_json(browser: Any, data: dict[str, Any]) -> None:
    assert json.loads(browser.execute_script("return document.getElementById('data').textContent")) == json.loads(
        json.dumps(data)
    )
    assert [row[0] for row in cells(browser, "ops")] == ["Conv", "Relu"]
    assert cells(browser, "ops")[0][3:5] == ["600", "18 ms"]
    (collective,) = cells(browser, "collectives")
    assert collective[:3] == ["all_reduce", "4.0 KiB", "300"]
    assert collective[3] == "40 us"  # the later instance only moves data
    assert collective[6:9] == ["", "unknown", "instance 1"]  # how fast memory is was not measured
    assert browser.get_log("browser") == []
    assert "<b>" not in browser.title.replace("</script><b>", "")


def test_every_category_has_its_own_colour(browser: Any) -> None:
    known, colours = browser.execute_script(
        "const names = Object.keys(CATEGORY_COLOURS); return [names, names.map(categoryColour)]"
    )
    assert sorted(known) == sorted([*CATEGORIES, OTHER, IMPORTS])
    assert len(set(colours)) == len(known)


def test_each_tab_shows_its_section(browser: Any) -> None:
    for button in browser.find_elements("css selector", "nav button"):
        button.click()
        shown = [
            section.get_attribute("id") for section in browser.find_elements("css selector", "section:not([hidden])")
        ]
        assert shown == [button.get_attribute("data-tab")]


def test_each_tab_has_an_address(browser: Any) -> None:
    page = browser.current_url.partition("#")[0]
    for address, tab in (("timeline", "time-line"), ("collectives", "collective"), ("unknown", "summary")):
        browser.get(f"{page}#{address}")
        browser.execute_async_script(READY)
        (shown,) = browser.find_elements("css selector", "section:not([hidden])")
        assert shown.get_attribute("id") == tab
    browser.find_element("css selector", "[data-tab=op]").click()
    assert browser.current_url == f"{page}#ops"
    browser.back()
    assert browser.find_element("css selector", "section:not([hidden])").get_attribute("id") == "summary"


def test_the_box_at_the_top_is_green_only_if_nothing_is_wrong(browser: Any, data: dict[str, Any]) -> None:
    classes = "return summary(arguments[0]).filter(part => part && part.className).map(part => part.className)"
    fine = data | {"findings": [], "notes": []}
    assert "fine" in browser.execute_script(classes, fine)
    worse = [
        data,
        fine | {"notes": ["several programs"]},
        fine | {"processes": [data["processes"][0] | {"dropped_records": 1}]},
    ]
    assert data["findings"]
    for wrong in worse:
        assert "fine" not in browser.execute_script(classes, wrong)


@pytest.mark.parametrize("width", [2000, 1400, 800])
def test_no_tab_is_wider_than_the_window(browser: Any, width: int) -> None:
    """Wide tables scroll by themselves; charts are as wide as the window allows."""
    browser.set_window_size(width, 900)
    try:
        for button in browser.find_elements("css selector", "nav button"):
            button.click()
            browser.execute_async_script(DRAWN)
            page, window = browser.execute_script(
                "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
            )
            assert page <= window, button.text
            for chart in browser.find_elements("css selector", "section:not([hidden]) > .chart"):
                assert chart.size["width"] >= width - 100
    finally:
        browser.set_window_size(1400, 900)


def test_zoom_search_and_selection(browser: Any) -> None:
    browser.find_element("css selector", "[data-tab=time-line]").click()
    end, drawn = browser.execute_script("timeline.show(0, timeline.end); return [timeline.end, timeline.drawn]")
    assert end == pytest.approx(29_990, rel=0.01)
    assert drawn > SPANS
    ranges = browser.execute_script(
        """const [lane, i] = [timeline.lanes[0], 5], x = timeline.canvas.getBoundingClientRect();
        timeline.show(lane.begin[i] - 100, lane.begin[i] + 100);
        const before = timeline.to - timeline.from;
        const at = {deltaY: -200, clientX: x.left + 600, clientY: x.top + 60};
        timeline.canvas.dispatchEvent(new WheelEvent("wheel", at));
        return [before, timeline.to - timeline.from]"""
    )
    assert ranges[1] < ranges[0] == pytest.approx(200)
    box = browser.find_element("id", "search")
    box.send_keys("all_red")
    assert browser.find_element("id", "hits").text == f"{2 * SPANS} spans"
    box.send_keys("\n")
    details = dict(cells(browser, "details"))
    assert details["bytes"] == "4096"
    assert cells(browser, "together") == [["instance 1", "0.01 ms", "40 us"]]
    box.clear()


def test_every_ipu_of_a_replica_has_a_row(browser: Any) -> None:
    rows = browser.execute_script(
        """return timeline.lanes.map(lane => [lane.label, lane.rows,
        [...new Set(Array.from(lane.name, name => timeline.names[name].name))].sort()])"""
    )
    assert rows == [
        row
        for instance in range(2)
        for row in (
            [f"instance {instance}", 2, ["all_reduce", "step"]],
            [f"instance {instance}: replica {instance}, IPU 0", 1, sorted(OPS)],
        )
    ]


def test_marks_of_the_axis_differ_however_far_it_is_zoomed(browser: Any) -> None:
    texts = browser.execute_script(
        "return [0.1, 5, 2e3].map(step => [1, 2].map(n => timeText(6563e3 + n * step, 6563e3, step)))"
    )
    assert texts == [["6.5630001 s", "6.5630002 s"], ["6.563005 s", "6.56301 s"], ["6.565 s", "6.567 s"]]


def test_messages_are_drawn_from_sender_to_receiver(browser: Any, data: dict[str, Any]) -> None:
    assert (data["transfers"], data["transfers_received_before_sent"]) == (SPANS, 0)
    drawn, flow = browser.execute_script("timeline.show(0, 1000); return [timeline.drawnFlows, timeline.flows[3]]")
    assert drawn == 10
    assert flow == ["message", 0, 305, 2, 315]


def test_stragglers_are_listed_with_their_waits(browser: Any, data: dict[str, Any]) -> None:
    first, second = cells(browser, "stragglers")
    assert (first[0], first[4:7]) == ("instance 0", ["0", "300", "0 us"])
    assert (second[0], second[4:7]) == ("instance 1", ["300", "300", "3 ms"])
    assert second[2] > first[2]


def test_a_click_on_the_head_of_a_column_sorts_by_it(browser: Any) -> None:
    browser.find_element("css selector", "[data-tab=op]").click()
    for expected in (["Relu", "Conv"], ["Conv", "Relu"]):
        browser.find_element("css selector", "#ops th").click()
        assert [row[0] for row in cells(browser, "ops")] == expected


def test_memory_and_tensors_live_at_an_instant(browser: Any, data: dict[str, Any]) -> None:
    (program,) = data["programs"]
    for memory in program["memory"]:
        ipu = memory["ipu"]
        uses = [use for use, size in memory["bytes_by_use"].items() if size]
        assert sorted(row[0] for row in cells(browser, f"memory-0-{ipu}-uses")) == sorted(uses)
        by_op = [[row["name"], row["output"]] for row in memory["by_op"]]
        assert [row[:2] for row in cells(browser, f"memory-0-{ipu}-ops")] == by_op
        peak = memory["live_bytes"].index(max(memory["live_bytes"]))
        alive = [tensor for tensor in memory["not_always_live"] if tensor["first"] <= peak <= tensor["last"]]
        assert [row[0] for row in cells(browser, f"memory-0-{ipu}-alive")] == [tensor["tensor"] for tensor in alive][
            :50
        ]


def test_a_click_on_the_curve_of_live_memory_chooses_the_instant(browser: Any, data: dict[str, Any]) -> None:
    opened(browser, "memory")
    curve = browser.find_element("css selector", "#chart-liveness-0-0 .nsewdrag")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", curve)
    browser.execute_script("document.querySelector('#chart-liveness-0-0').choose(0)")
    assert browser.find_element("css selector", "#memory-0-0-instant h4").text.startswith("At instruction 0: ")
    actions = pytest.importorskip("selenium.webdriver").ActionChains
    for _ in range(2):  # the first only moves the pointer there
        actions(browser).move_to_element(curve).pause(0.1).click().perform()  # its middle
    after = browser.find_element("css selector", "#memory-0-0-instant h4").text
    middle = len(data["programs"][0]["memory"][0]["live_bytes"]) // 2
    assert abs(int(after.split()[2].rstrip(":")) - middle) <= 1
    assert browser.get_log("browser") == []


def test_charts_show_the_numbers_of_the_json(browser: Any, data: dict[str, Any]) -> None:
    """The library drew the figures that Python made, with a box for each number."""
    expected = json.loads(json.dumps(all_charts(data)))
    seen = set()
    for button in browser.find_elements("css selector", "nav button"):
        opened(browser, button.get_attribute("data-tab"))
        drawn = browser.execute_script(SHOWN)
        for chart in drawn:
            values = [
                {key: trace[key] for key in ("x", "y", "base") if key in trace}
                for trace in expected[chart["figure"]]["data"]
            ]
            assert chart["values"] == values
            bars = sum(len(trace["x"]) for trace in expected[chart["figure"]]["data"] if trace["type"] == "bar")
            assert chart["bars"] == bars
            seen.add(chart["figure"])
    assert seen == expected.keys()
    assert browser.get_log("browser") == []


def test_a_page_without_the_library_has_all_but_the_charts(
    browser: Any, folder: Path, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_page, "library_script", lambda: None)
    page = tmp_path / "run.html"
    page.write_bytes(report_html(analyse(read_run(folder)), data))
    window = browser.current_window_handle
    browser.switch_to.new_window("tab")
    try:
        browser.get(page.as_uri())
        browser.execute_async_script(READY)
        assert browser.find_element("id", "missing-charts").text == library.MISSING
        assert browser.find_elements("css selector", ".chart") == []
        assert [row[0] for row in cells(browser, "ops")] == ["Conv", "Relu"]
        opened(browser, "time-line")
        assert browser.execute_script("timeline.show(0, timeline.end); return timeline.drawn") > SPANS
        opened(browser, "memory")
        browser.execute_script(
            "const at = document.getElementById('memory-0-0-at'); at.value = 1; at.dispatchEvent(new Event('change'))"
        )
        assert browser.find_element("css selector", "#memory-0-0-instant h4").text.startswith("At instruction 1: ")
        assert browser.get_log("browser") == []
    finally:
        browser.close()
        browser.switch_to.window(window)


def test_the_program_with_measured_times(browser: Any, data: dict[str, Any]) -> None:
    (program,) = data["programs"]
    rows = cells(browser, "instructions-0")
    assert [row[0] for row in rows] == [row["text"] for row in program["instructions"]]
    assert [int(row[7]) for row in rows] == [row["flops"] for row in program["instructions"]]
    assert browser.find_element("css selector", "#program pre").get_attribute("textContent") == program["listing"]
    assert browser.get_log("browser") == []


def test_the_schedule_of_a_pipeline_is_drawn_with_its_bubbles(browser: Any, data: dict[str, Any]) -> None:
    (program,) = data["programs"]
    pipeline = program["pipeline"]
    opened(browser, "pipeline")
    drawn = browser.execute_script(BOXES, "chart-schedule-0")
    lengths = {
        kind: [span[2] for span in pipeline["spans"] if span[4] == kind] for kind in {s[4] for s in pipeline["spans"]}
    }
    scale = drawn["forward"][0] / lengths["forward"][0]
    for kind, expected in lengths.items():
        assert drawn[kind] == pytest.approx([scale * length for length in expected], abs=1.5)
    total = scale * pipeline["seconds"]
    assert sum(drawn["bubble"]) / 2 / total == pytest.approx(1 - pipeline["efficiency"], abs=0.01)
    assert f"{100 * pipeline['efficiency']:.1f} %" in browser.find_element("id", "pipeline").get_attribute(
        "textContent"
    )


def test_only_spans_that_are_seen_are_drawn(browser: Any) -> None:
    """A view draws only distinguishable spans, among them the first and last of a zoomed view."""
    seen = """const lane = {label: "l", process: "p", begin: new Float64Array(1e6),
            length: new Float32Array(1e6).fill(0.5), name: new Uint32Array(1e6),
            value: new Int32Array(1e6), depth: new Uint8Array(1e6), end: 1e6, rows: 1};
        for (let i = 0; i < 1e6; i++) lane.begin[i] = i;
        const canvas = document.createElement("canvas");
        canvas.style = "width: 1200px; height: 100px"; document.body.append(canvas);
        const many = new Timeline(canvas, [lane], [{name: "x", category: "compute"}], () => {});
        many.show(0, 1e6);
        const whole = many.drawn, start = performance.now();
        for (let i = 0; i < 20; i++) many.show(1e4 * i, 1e4 * i + 5e5);
        const took = (performance.now() - start) / 20;
        many.show(500000.2, 500020.2);
        const few = many.drawn;
        canvas.remove();
        return [whole, few, took];"""
    all_drawn, few, took = browser.execute_script(seen)
    assert 500 < all_drawn < 2100  # pixels
    assert few == 21
    assert took < 33  # milliseconds of a frame, with half a million spans in view


def test_a_range_is_summed_up_without_counting_twice(browser: Any) -> None:
    totals = dict(browser.execute_script("return timeline.totals([0, 1e9])"))
    assert totals["Conv"] == pytest.approx(2 * SPANS * 30, rel=1e-3)
    assert totals["step"] == pytest.approx(0, abs=1)
    assert sum(totals.values()) == pytest.approx(2 * SPANS * 90, rel=1e-3)


def test_too_many_spans_are_merged_and_the_longest_kept(folder: Path) -> None:
    run = read_run(folder)
    full, few = packed_lanes(run), packed_lanes(run, most=200)
    assert sum(lane["count"] for lane in full["lanes"]) == 2 * 4 * SPANS
    assert 0 < sum(lane["count"] for lane in few["lanes"]) <= 220
    assert few["names"] == full["names"]


def test_no_message_is_received_before_it_was_sent_and_spans_add_up(folder: Path) -> None:
    analysis = analyse(read_run(folder))
    for calls in analysis.collectives:
        assert (calls.waits >= 0).all()
        assert (calls.moves >= 0).all()
        np.testing.assert_array_equal(calls.waits + calls.moves, calls.ends - calls.begins)
