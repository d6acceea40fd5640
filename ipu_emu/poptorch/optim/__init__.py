"""optim: PopTorch's optimisers."""

from ipu_emu.poptorch.optim.optimisers import LAMB, SGD, Adam, AdamW, Optimizer, RMSprop, VariableAttributes

__all__ = ["LAMB", "SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "VariableAttributes"]
