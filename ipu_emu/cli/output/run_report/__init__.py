"""Run report: the report of a traced run as text, and as a page with a timeline."""
