"""Output: results as text, SVG, HTML and JSON."""
