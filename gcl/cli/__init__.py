"""Command line: parts shared by ``gcl.bench`` and ``gcl.explain``: usage errors, tables, diagrams, output files."""
