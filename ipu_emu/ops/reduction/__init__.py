"""Reduction: reductions along axes, and sorted, selected and cumulative values."""
