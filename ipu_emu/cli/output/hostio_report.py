"""Host I/O report: the files of ``ipu-emu hostio``: JSON, a picture, and a self-contained HTML page."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

from gcl.drawing.canvas import MARGIN, Canvas
from gcl.drawing.units import memory
from ipu_emu.errors import EmulatorError
from ipu_emu.hostio.probe.bottleneck_analysis import contradiction_in, overhead_of
from ipu_emu.hostio.probe.program_runs import ProgramRun
from popdist_py.files.atomic_write import replace_file

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


def write_json(path: Path, runs: Sequence[ProgramRun], said: Sequence[str]) -> None:
    """Write all measurements, the overheads (without a limit if measurements contradict each other) and advice."""
    groups = [[run for run in runs if run.instances == count] for count in _counts(runs)]
    overheads = [
        {**asdict(overhead_of(group)), "limit": None if contradiction_in(group) else overhead_of(group).limit}
        for group in groups
    ]
    _write(
        path,
        json.dumps(
            {"runs": [asdict(run) for run in runs], "overheads": overheads, "advice": list(said)}, indent=1
        ).encode(),
    )


def write_png(path: Path, runs: Sequence[ProgramRun], said: Sequence[str]) -> None:
    """Draw bars of throughput, three for each number of instances."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for index, (mode, colour) in enumerate(_COLOURS.items()):
        rates = [run.samples_per_second for run in runs if run.mode == mode]
        axes.bar([at + (index - 1) * 0.27 for at in range(len(rates))], rates, 0.25, label=mode, color=colour)
    axes.set_xticks(range(len(_counts(runs))), [str(count) for count in _counts(runs)])
    axes.set_xlabel("instances")
    axes.set_ylabel("samples/s (wall time)")
    axes.set_title(fill(said[0], 75), fontsize=10)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    _write(path, picture.getvalue())


def write_html(path: Path, runs: Sequence[ProgramRun], said: Sequence[str]) -> None:
    """Write a page with advice, bars and table."""
    heads = "".join(f"<th>{name}</th>" for name, _ in _COLUMNS)
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text(run))}</td>" for _, text in _COLUMNS) + "</tr>" for run in runs
    )
    items = "".join(f"<li>{html.escape(line)}</li>" for line in said)
    page = _PAGE.format(items=items, bars=_bars(runs), heads=heads, lines=lines)
    _write(path, page.encode())


def _bars(runs: Sequence[ProgramRun]) -> str:
    """A bar of samples per second for each run, grouped by number of instances."""
    most = max(run.samples_per_second for run in runs)
    canvas = Canvas(width=640)
    for number, run in enumerate(runs):
        canvas.y += 8 if number and number % len(_COLOURS) == 0 else 0
        width = 420 * run.samples_per_second / most
        canvas.text(MARGIN, canvas.y + 14, f"{run.instances} x {run.mode}")
        canvas.box(MARGIN + 120, canvas.y, width, 18, fill=_COLOURS[run.mode], title="samples per second")
        canvas.text(MARGIN + 126 + width, canvas.y + 14, rate(run))
        canvas.y += 24
    return canvas.document()


def _counts(runs: Sequence[ProgramRun]) -> list[int]:
    return sorted({run.instances for run in runs})


def _write(path: Path, data: bytes) -> None:
    try:
        replace_file(path, data)
    except OSError as error:
        raise EmulatorError(f"{path} cannot be written: {error.strerror}; choose another place") from error


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Host I/O</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1e293b}}
table{{border-collapse:collapse}}th,td{{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #e2e8f0}}
</style>
<h1>Host I/O</h1><ul>{items}</ul>{bars}
<p>Samples per second of the whole job, measured in wall time. <b>real</b>: the program as it is; <b>generated</b>:
random data, generated once, moved in every step; <b>synthetic</b>: nothing is prepared or moved for a step.</p>
<table><tr>{heads}</tr>{lines}</table></html>
"""
