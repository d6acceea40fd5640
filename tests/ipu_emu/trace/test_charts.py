"""The charts of a report as figures: their values are those of the report, and plotly accepts all properties."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ipu_emu.cli.output.run_report import report_page
from ipu_emu.cli.output.run_report.charts import library
from ipu_emu.cli.output.run_report.report_page import all_charts, report_html
from ipu_emu.trace import read_run
from ipu_emu.trace.findings import analyse
from ipu_emu.trace.report_data import report_data
from popdist_py.trace import Category, Recorder
from popdist_py.trace.records import Kind, key_of

MIB = 1 << 20


def collective(nbytes: int, rate: float | None, **more: Any) -> dict[str, Any]:
    about = {"name": "all_reduce", "operator": "add", "method": "direct", "calls": 3}
    limit = {
        "limit": "memory of the host",
        "limit_interface": "",
        "limit_gigabytes_per_second": 8.0,
        "limited_gigabytes_per_second": rate,
        "share_of_limit": rate and rate / 8,
    }
    return {"bytes": nbytes, "bandwidth_gigabytes_per_second": rate, **about, **limit, **more}


NETWORK = {"limit": "network interface", "limit_interface": "eth0", "limit_gigabytes_per_second": 1.25}
UNKNOWN = {"limit": "unknown", "limit_gigabytes_per_second": None, "limited_gigabytes_per_second": None}


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """A report of two instances, one of which has a name that looks like HTML, and a program on two IPUs."""
    labels = ["instance 0", "instance <b>1</b>"]
    times = [{"compute": 3.0, "host I/O": 0.0, "launch": 1.0}, {"compute": 2.0, "launch": 2.0}]
    keys = "seconds_by_category", "stepping_seconds_by_category"
    memory = [
        {"ipu": ipu, "bytes": 3 * MIB, "bytes_by_use": {"weights": 2 * MIB, "code": MIB, "FIFOs": 0}}
        for ipu in (0, 1)
    ]
    spans = [
        [0, 0.0, 1.0, "forward of stage 0, micro-batch 0, on IPU 0", "forward"],
        [1, 1.0, 2.0, "forward of stage 1, micro-batch 0, on IPU 1", "forward"],
        [0, 3.0, 1.0, "update <i>", "weight update"],
    ]
    return {
        "instances": [
            {"label": label, **dict.fromkeys(keys, uses)} for label, uses in zip(labels, times, strict=True)
        ],
        "stragglers": [
            {"label": label, "working_seconds": 1.0 + at, "waiting_seconds": 0.5, "late_seconds": 0.25 * at}
            for at, label in enumerate(labels)
        ],
        "collectives": [
            collective(4096, 2.0),
            collective(64, 0.5),
            collective(0, None, **UNKNOWN),
            collective(256, 1.0, **UNKNOWN, share_of_limit=None, name="broadcast", operator=None, method=None),
            collective(512, 1.0, **NETWORK, limited_gigabytes_per_second=0.5, name="reduce"),
        ],
        "stages": {"busy_by_ipu": {"0": 0.75, "1": 0.5}},
        "programs": [
            {
                "bytes_per_ipu": 4 * MIB,
                "memory": [{**entry, "live_bytes": [10, 30, 20]} for entry in memory],
                "pipeline": {"seconds": 4.0, "efficiency": 0.5, "spans": spans},
            }
        ],
    }


@pytest.fixture(scope="module")
def charts(data: dict[str, Any]) -> dict[str, Any]:
    return all_charts(data)


def traces(chart: dict[str, Any]) -> dict[str, Any]:
    return {trace["name"]: trace for trace in chart["data"]}


def test_time_by_category_and_instance(charts: dict[str, Any]) -> None:
    for key in ("seconds_by_category", "stepping_seconds_by_category"):
        drawn = traces(charts[key])
        assert {name: trace["x"] for name, trace in drawn.items()} == {"compute": [3.0, 2.0], "launch": [1.0, 2.0]}
        assert [*drawn] == ["compute", "launch"]  # those with the most time first
        assert drawn["launch"]["y"] == ["instance 0", "instance &lt;b&gt;1&lt;/b&gt;"]


def test_stragglers(charts: dict[str, Any]) -> None:
    drawn = {name: trace["x"] for name, trace in traces(charts["stragglers"]).items()}
    assert drawn == {
        "works outside collectives": [1.0, 2.0],
        "waits for others": [0.5, 0.5],
        "late by": [0.0, 0.25],
    }


def test_bandwidth_by_size_with_its_limit(charts: dict[str, Any]) -> None:
    drawn = traces(charts["bandwidth"])
    assert (drawn["all_reduce add direct"]["x"], drawn["all_reduce add direct"]["y"]) == ([64, 4096], [0.5, 2.0])
    assert drawn["broadcast"]["y"] == [1.0]
    assert drawn["reduce add direct"]["y"] == [0.5]  # of the bytes that the network limits
    assert drawn["all_reduce add direct"]["text"][0] == "64 B, 3 calls, 6.2% of the limit"
    assert {name: trace["y"] for name, trace in drawn.items() if name.startswith("limit")} == {
        "limit: memory of the host": [8.0, 8.0],
        "limit: network interface eth0": [1.25, 1.25],
    }


def test_memory_by_use_and_what_is_live(charts: dict[str, Any]) -> None:
    drawn = {name: trace["x"] for name, trace in traces(charts["memory-0"]).items()}
    assert drawn == {"weights": [2 * MIB] * 2, "code": [MIB] * 2}
    assert charts["memory-0"]["layout"]["shapes"][0]["x0"] == 4 * MIB
    assert charts["memory-0"]["layout"]["xaxis"]["ticktext"][:3] == ["0 B", "512 KiB", "1.00 MiB"]
    for ipu in (0, 1):
        (curve,) = charts[f"liveness-0-{ipu}"]["data"]
        assert (curve["x"], curve["y"]) == ([0, 1, 2], [10, 30, 20])


def test_the_schedule_has_the_tasks_and_their_bubbles(charts: dict[str, Any]) -> None:
    drawn = traces(charts["schedule-0"])
    forward, bubble = drawn["forward"], drawn["bubble"]
    assert [forward[key] for key in ("y", "base", "x", "text")] == [
        ["IPU 0", "IPU 1"],
        [0.0, 1.0],
        [1.0, 2.0],
        ["0", "0"],
    ]
    gaps = sorted(zip(bubble["y"], bubble["base"], bubble["x"], strict=True))
    assert gaps == [("IPU 0", 1.0, 2.0), ("IPU 1", 0.0, 1.0), ("IPU 1", 3.0, 1.0)]
    assert drawn["weight update"]["hovertext"] == ["update &lt;i&gt;: 1,000.0 ms"]


def test_how_much_each_ipu_worked(charts: dict[str, Any]) -> None:
    assert {name: trace["x"] for name, trace in traces(charts["busy"]).items()} == {
        "works": [0.75, 0.5],
        "waits": [0.25, 0.5],
    }


def test_plotly_has_every_property(charts: dict[str, Any]) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects", reason="needs the extra report (plotly)")
    for chart in charts.values():
        figure = graph_objects.Figure(json.loads(json.dumps(chart)))  # it refuses unknown properties and values
        assert len(figure.data) == len(chart["data"])


def test_where_nothing_was_recorded_there_is_no_chart() -> None:
    empty = {"instances": [], "stragglers": [], "collectives": [], "stages": None, "programs": []}
    assert all_charts(empty) == {}


def test_without_plotly_the_page_says_how_to_get_charts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_page, "library_script", lambda: None)
    recorder = Recorder(str(tmp_path), limit=64 << 20, about={"pid": 1, "host": "h", "boot": "b"})
    recorder.record(key_of(Kind.SPAN, recorder.name("step", Category.COMPUTE)), 1_000, 2_000)
    recorder.close()
    analysis = analyse(read_run(tmp_path))
    page = report_html(analysis, report_data(analysis))
    assert library.MISSING.encode() in page
    assert "pip install 'poprun-py[report]'" in library.MISSING
    assert len(page) < 100_000
