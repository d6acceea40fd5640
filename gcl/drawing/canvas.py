"""Canvas: SVG elements, placed from top to bottom."""

from __future__ import annotations

from html import escape

MARGIN, WIDTH = 24, 1120
INK, FAINT, PAPER = "#1f2933", "#9aa5b1", "#ffffff"
#: One colour per stream of a method.
STREAMS = ("#1565c0", "#00897b", "#e65100", "#8e24aa")


class Canvas:
    """SVG elements, from top to bottom: ``y`` is where the next section begins.

    ``width`` is that between the margins, in pixels.
    """

    def __init__(self, width: float = WIDTH, font: str = "DejaVu Sans, Arial, sans-serif") -> None:
        self.y = float(MARGIN)
        self._width, self._font = width, font
        self._parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        anchor: str = "start",
        fill: str = INK,
        bold: bool = False,
    ) -> None:
        """``text``, with its blanks, on the base line ``y``."""
        weight = ' font-weight="600"' if bold else ""
        weight += ' xml:space="preserve"' if "  " in text or text != text.strip() else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:.3g}" text-anchor="{anchor}" fill="{fill}"{weight}>'
            f"{escape(text)}</text>"
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str,
        stroke: str = "none",
        title: str = "",
        radius: float = 2,
    ) -> None:
        """A rectangle from its upper left corner; a pointer on it shows ``title``."""
        tip = f"<title>{escape(title)}</title>" if title else ""
        edge = "" if stroke == "none" else f' stroke="{stroke}"'
        corner = f' rx="{radius:g}"' if radius else ""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"{corner} '
            f'fill="{fill}"{edge}>{tip}</rect>'
        )

    def path(
        self, shape: str, *, stroke: str, width: float = 1.5, arrow: int | None = None, dashed: bool = False
    ) -> None:
        """A curve; ``arrow`` is the stream whose arrow head it ends with."""
        end = "" if arrow is None else f' marker-end="url(#head{arrow})"'
        dash = ' stroke-dasharray="3 3"' if dashed else ""
        self._parts.append(f'<path d="{shape}" fill="none" stroke="{stroke}" stroke-width="{width:g}"{end}{dash}/>')

    def begin_group(self, number: int, count: int, seconds: float) -> None:
        """Begin frame ``number`` of ``count``, which are shown one at a time, each for ``seconds``."""
        times = ";".join(f"{at / count:.6f}" for at in range(count))
        shown = ";".join("inline" if at == number else "none" for at in range(count))
        display = "inline" if number == 0 else "none"
        self._parts.append(
            f'<g display="{display}"><animate attributeName="display" calcMode="discrete" values="{shown}" '
            f'keyTimes="{times}" dur="{count * seconds:g}s" repeatCount="indefinite"/>'
        )

    def end_group(self) -> None:
        """End the frame."""
        self._parts.append("</g>")

    def document(self) -> str:
        """The SVG file."""
        heads = "".join(
            f'<marker id="head{i}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
            f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
            for i, colour in enumerate(STREAMS)
        )
        width, height = self._width + 2 * MARGIN, self.y + MARGIN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" '
            f'viewBox="0 0 {width} {height:.0f}" font-family="{self._font}">\n'
            f'<defs>{heads}</defs>\n<rect width="100%" height="100%" fill="{PAPER}"/>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )
