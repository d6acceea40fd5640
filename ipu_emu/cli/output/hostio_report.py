"""Host I/O report: the files of ``ipu-emu hostio``: JSON, a picture, and a self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from html import escape
from importlib.util import find_spec
from textwrap import wrap

from gcl.drawing.canvas import MARGIN
from gcl.drawing.units import memory
from ipu_emu.cli.output import chart
from ipu_emu.errors import EmulatorError
from ipu_emu.hostio.probe.bottleneck_analysis import contradiction_in, overhead_of
from ipu_emu.hostio.probe.program_runs import ProgramRun

_COLOURS = {"real": "#c2410c", "generated": "#2563eb", "synthetic": "#64748b"}
_COLUMNS: list[tuple[str, Callable[[ProgramRun], str]]] = [
    ("instances", lambda run: str(run.instances)),
    ("data", lambda run: run.mode),
    ("samples/s", lambda run: f"{run.samples_per_second:,.1f}"),
    ("GB/s", lambda run: f"{run.gigabytes_per_second:.3f}"),
    ("waiting for data", lambda run: f"{run.waiting:.1%}"),
    ("CPUs per instance", lambda run: f"{run.cpus_per_instance:.2f}"),
    ("memory per instance", lambda run: memory(run.memory_bytes_per_instance)),
    ("workers", lambda run: str(run.workers)),
]


def rate(run: ProgramRun) -> str:
    """Return samples per second with at least three digits."""
    value = run.samples_per_second
    return f"{value:,.0f}/s" if value >= 100 else f"{value:.3g}/s"


def check_png() -> None:
    """Raise EmulatorError, before anything is measured, if no picture can be drawn."""
    if find_spec("matplotlib") is None:
        raise EmulatorError("--png needs matplotlib; pip install 'poprun-py[plots]', or use --html")


def json_file(runs: Sequence[ProgramRun], said: Sequence[str]) -> bytes:
    """All measurements, the overheads (without a limit if measurements contradict each other) and advice."""
    groups = [[run for run in runs if run.instances == count] for count in sorted({run.instances for run in runs})]
    overheads = [
        {**asdict(overhead_of(group)), "limit": None if contradiction_in(group) else overhead_of(group).limit}
        for group in groups
    ]
    facts = {"runs": [asdict(run) for run in runs], "overheads": overheads, "advice": list(said)}
    return json.dumps(facts, indent=1).encode()


def png_picture(runs: Sequence[ProgramRun], said: Sequence[str]) -> bytes:
    """Bars of throughput below the first advice."""
    return _bars(runs, wrap(said[0], 75)).png()


def html_page(runs: Sequence[ProgramRun], said: Sequence[str]) -> bytes:
    """A page with advice, bars and table."""
    items = "".join(f"<li>{escape(line)}</li>" for line in said)
    rows = chart.html_table(([text(run) for _, text in _COLUMNS] for run in runs), [name for name, _ in _COLUMNS])
    body = f"<h1>Host I/O</h1><ul>{items}</ul>{_bars(runs).svg()}\n{_ABOUT}\n{rows}"
    return chart.html_page("Host I/O", _STYLE, body)


def _bars(runs: Sequence[ProgramRun], title: Sequence[str] = ()) -> chart.Chart:
    """A bar of samples per second for each run, grouped by number of instances."""
    most, top = max(run.samples_per_second for run in runs), MARGIN + 20 * len(title)
    places = [top + 24 * number + 8 * (number // len(_COLOURS)) for number in range(len(runs))]
    bars = chart.Chart(640 + 2 * MARGIN, places[-1] + 24 + MARGIN)
    for number, line in enumerate(title):
        bars.text(MARGIN, MARGIN + 20 * number, line, bold=True)
    for run, y in zip(runs, places, strict=True):
        width = 420 * run.samples_per_second / most
        bars.text(MARGIN, y + 14, f"{run.instances} x {run.mode}")
        bars.box(MARGIN + 120, y, width, 18, _COLOURS[run.mode], title="samples per second")
        bars.text(MARGIN + 126 + width, y + 14, rate(run))
    return bars


_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1e293b}
table{border-collapse:collapse}th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #e2e8f0}"""
_ABOUT = """<p>Samples per second of the whole job, measured in wall time. <b>real</b>: the program as it is;
<b>generated</b>: random data, generated once, moved in every step; <b>synthetic</b>: nothing is prepared or moved for
a step.</p>"""
