"""Call a kernel; print its result, and whether it was compiled or loaded from the disk."""

import sys

from gcl.outer import outer

result = outer(1)
assert bool(outer.stats.cache_hits) == ("numba.experimental.jitclass.base" not in sys.modules)
print(result, "from the disk" if outer.stats.cache_hits else "compiled")
