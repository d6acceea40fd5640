"""charts: the charts of a report as plotly figures (plain data), and the library that draws them on the page."""
