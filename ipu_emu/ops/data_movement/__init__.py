"""Data movement: ops that reshape, transpose, join, pad, cast or create tensors."""
