"""Start processes that import popart."""

import multiprocessing
import subprocess
import sys


def shape(size):
    import popart

    return popart.TensorInfo("FLOAT", [size]).shape(), popart.__name__


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map_async(shape, [3]).get(120))
    code = "import popdist.popart, popart, popdist; print(popart.__name__, popdist.__name__, popdist.popart.__name__)"
    print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
