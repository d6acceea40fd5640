"""Results as text, SVG, HTML and JSON."""
