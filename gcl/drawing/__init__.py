"""The SVG canvas, and the units of printed numbers."""
