"""Run poprun-py, and print what it has imported that takes long."""

import sys

from poprun_py.cli import main

main(sys.argv[1:])
print("slow:", *sorted({"numpy", "mpi4py", "click", "rich", "numba", "onnx", "asyncio"} & set(sys.modules)))
