"""The function that the kernel of outer.py calls."""

from kernels_on_disk.inner import inner

from gcl.kernels.jit import jit


@jit
def middle(x):
    return inner(x)
