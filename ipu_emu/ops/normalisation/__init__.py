"""Normalisation: normalisation by batch, group or layer statistics, and softmax."""
