"""Losses and the decoding of CTC."""
