"""charts: the charts of a report as figures of plotly, plain data, and the library that draws them on the page."""
