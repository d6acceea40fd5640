"""A numba without one of them is refused by name when gcl is imported."""

import numba.core.cgutils  # noqa: TID251

del numba.core.cgutils.for_range  # noqa: TID251
try:
    import gcl  # noqa: F401
except ImportError as error:
    print(error)
