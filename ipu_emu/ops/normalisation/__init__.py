"""Normalisation by batch, group or layer statistics, and softmax."""
