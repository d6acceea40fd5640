"""The function that the kernel of middle.py calls."""

from gcl.kernels.jit import part


@part
def inner(x):
    return x + 1
