"""Run poprun-py, and print the slow modules that it has imported."""

import sys

from poprun_py.cli import main

main(sys.argv[1:])
print("slow:", *sorted({"numpy", "mpi4py", "click", "rich", "numba", "onnx", "asyncio"} & set(sys.modules)))
