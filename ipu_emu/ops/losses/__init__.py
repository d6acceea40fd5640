"""Losses: loss ops, and the decoding of CTC."""
