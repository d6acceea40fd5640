"""Draw docs/images/digits.svg: runs the main job and shows its topology table and its loss curve.

PATH=.venv/bin:$PATH python scripts/picture.py
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from gcl.drawing.canvas import MARGIN, Canvas

COMMAND = "poprun-py --print-topology=yes --num-instances 2 --num-replicas 4 python examples/digits.py"
TARGET = Path(__file__).parents[1] / "docs/images/digits.svg"
WIDTH, HEIGHT, LINE = 900, 330, 15
BLUE = "#0969da"
LEFT, RIGHT, TOP, BOTTOM = 520, 870, 60, 285  # of the plot


def main() -> None:
    lines = subprocess.run(COMMAND.split(), capture_output=True, text=True, check=True).stdout.splitlines()
    text = [line.removeprefix("[1,0]<stdout>:") for line in lines]
    losses = [float(match[1]) for line in text if (match := re.search(r"epoch .*loss +([\d.]+)", line))]
    start = next(i for i, line in enumerate(text) if line.startswith(" ="))
    end = next(i for i, line in enumerate(text) if line.startswith(" -"))
    results = [line.partition("(wall")[0] for line in text if line.startswith(("test accuracy", "throughput"))]
    TARGET.write_text(picture([*text[start : end + 1], "", *results], losses))
    print(f"wrote {TARGET}: {len(losses)} epochs")


def picture(terminal: list[str], losses: list[float]) -> str:
    """The terminal on the left, the curve on the right."""
    canvas = Canvas(WIDTH - 2 * MARGIN, font="DejaVu Sans Mono, Menlo, Consolas, monospace")
    canvas.box(0, 0, WIDTH, HEIGHT, fill="#f6f8fa", radius=8)
    canvas.text(20, 30, f"$ {COMMAND}", bold=True)
    for number, line in enumerate(terminal):
        canvas.text(20, 70 + LINE * number, line)
    curve(canvas, losses)
    canvas.y = HEIGHT - MARGIN
    return canvas.document()


def curve(canvas: Canvas, losses: list[float]) -> None:
    """Axes, a grid of quarters of the highest loss, the line and its points."""
    top = max(losses)
    xs = [LEFT + (RIGHT - LEFT) * i / (len(losses) - 1) for i in range(len(losses))]
    ys = [BOTTOM - (BOTTOM - TOP) * loss / top for loss in losses]
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = BOTTOM - (BOTTOM - TOP) * part
        canvas.path(f"M{LEFT} {y:.1f}H{RIGHT}", stroke="#d0d7de", width=1)
        canvas.text(LEFT - 8, y + 4, f"{top * part:.2f}", anchor="end")
    canvas.path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True)), stroke=BLUE, width=2.5)
    for x, y in zip(xs, ys, strict=True):
        canvas.box(x - 3, y - 3, 6, 6, fill=BLUE, radius=3)
    canvas.text(LEFT, BOTTOM + 20, "1")
    canvas.text(RIGHT, BOTTOM + 20, str(len(losses)), anchor="end")
    canvas.text((LEFT + RIGHT) / 2, BOTTOM + 20, "epoch", anchor="middle")
    canvas.text(RIGHT, TOP + 14, "training loss", anchor="end")


if __name__ == "__main__":
    main()
