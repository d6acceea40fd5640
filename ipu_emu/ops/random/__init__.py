"""Ops that draw random numbers: the counter-based generator, stochastic rounding, distributions, dropout."""
