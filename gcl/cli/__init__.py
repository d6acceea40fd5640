"""What ``gcl.bench`` and ``gcl.explain`` share: usage errors, tables, diagrams, output files."""
