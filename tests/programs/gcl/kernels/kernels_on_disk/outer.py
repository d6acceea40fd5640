"""A kernel that calls another one, in another file."""

from kernels_on_disk.middle import middle

from gcl.kernels.jit import jit


@jit
def outer(x):
    return middle(x)
