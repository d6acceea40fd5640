"""Reductions along axes, and sorted, selected and cumulative values."""
