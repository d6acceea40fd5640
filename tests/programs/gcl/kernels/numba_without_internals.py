"""Import gcl with a numba that lacks an internal name, which the error must name."""

import numba.core.cgutils  # noqa: TID251

del numba.core.cgutils.for_range  # noqa: TID251
try:
    import gcl  # noqa: F401
except ImportError as error:
    print(error)
