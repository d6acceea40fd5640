"""Draw docs/images/digits.svg: runs the main job and shows its topology table and its loss curve.

PATH=.venv/bin:$PATH python scripts/picture.py
"""

from __future__ import annotations

import html
import re
import subprocess
from pathlib import Path

COMMAND = "poprun-py --num-instances 2 --num-replicas 4 python examples/digits.py"
TARGET = Path(__file__).parents[1] / "docs/images/digits.svg"
WIDTH, HEIGHT, LINE = 900, 330, 15
LEFT, RIGHT, TOP, BOTTOM = 520, 870, 60, 285  # of the plot


def main() -> None:
    lines = subprocess.run(COMMAND.split(), capture_output=True, text=True, check=True).stdout.splitlines()
    text = [line.partition("<stdout>:")[2] for line in lines]
    losses = [float(found[1]) for line in text if (found := re.search(r"epoch .*loss +([\d.]+)", line))]
    start = next(i for i, line in enumerate(text) if line.startswith(" ="))
    end = next(i for i, line in enumerate(text) if line.startswith(" -"))
    results = [line.partition("(wall")[0] for line in text if line.startswith(("test accuracy", "throughput"))]
    TARGET.write_text(picture([*text[start : end + 1], "", *results], losses))
    print(f"wrote {TARGET}: {len(losses)} epochs")


def picture(terminal: list[str], losses: list[float]) -> str:
    """The terminal on the left, the curve on the right."""
    body = [
        f'<text x="20" y="{70 + LINE * i}" xml:space="preserve">{html.escape(line)}</text>'
        for i, line in enumerate(terminal)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12" fill="#24292f">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#f6f8fa"/>',
            f'<text x="20" y="30" font-weight="bold">$ {html.escape(COMMAND)}</text>',
            *body,
            *curve(losses),
            "</svg>\n",
        ]
    )


def curve(losses: list[float]) -> list[str]:
    """Axes, a grid of tenths of the highest loss, the line and its ends."""
    top = max(losses)
    xs = [LEFT + (RIGHT - LEFT) * i / (len(losses) - 1) for i in range(len(losses))]
    ys = [BOTTOM - (BOTTOM - TOP) * loss / top for loss in losses]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    grid = [0.0, 0.25, 0.5, 0.75, 1.0]
    heights = [BOTTOM - (BOTTOM - TOP) * part for part in grid]
    return [
        *(f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="#d0d7de"/>' for y in heights),
        *(
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{top * part:.2f}</text>'
            for part, y in zip(grid, heights, strict=True)
        ),
        f'<polyline points="{points}" fill="none" stroke="#0969da" stroke-width="2.5"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#0969da"/>' for x, y in zip(xs, ys, strict=True)),
        f'<text x="{LEFT}" y="{BOTTOM + 20}">1</text>',
        f'<text x="{RIGHT}" y="{BOTTOM + 20}" text-anchor="end">{len(losses)}</text>',
        f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 20}" text-anchor="middle">epoch</text>',
        f'<text x="{RIGHT}" y="{TOP + 14}" text-anchor="end">training loss</text>',
    ]


if __name__ == "__main__":
    main()
