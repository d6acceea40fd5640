"""Ops of the weight update: SGD, Adam and adaptive optimisers, clipping, loss scaling."""
