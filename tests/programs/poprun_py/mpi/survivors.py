"""One instance fails; the others lose it in a collective, handle the error themselves, and leave in their own way.

    survivors.py API CULPRIT WAY SURVIVORS_WAY

API is gcl, or torch for DDP; CULPRIT is the index of the instance that fails. All print misleading lines first.
"""

import os
import signal
import sys
from collections.abc import Callable

import popdist_py

#: Lines that would mislead a launcher which believes what programs print.
MISLEADING = """\
Abort(5) on node 0 (rank 0 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5) - process 0
Traceback (most recent call last):
  File "printed.py", line 1, in printed
gcl.errors.PeerLost: an all-reduce waits for replica 1 (rank 1), whose process has died
"""


def leave(way: str, code: int) -> None:
    """Leave by ``way`` with the exit code ``code``, where there is a choice."""
    if way == "exit":
        sys.exit(code)
    elif way == "os._exit":
        os._exit(code)
    elif way == "MPI_Abort":
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(code)
    elif way == "raise":
        raise ValueError(f"the reason of instance {rank}")
    elif way == "group":
        raise ExceptionGroup("several", [ValueError(f"the reason of instance {rank}")])
    else:
        os.kill(os.getpid(), getattr(signal, way))


def gcl_step() -> Callable[[], object]:
    import gcl

    communicator = gcl.connect()
    tensor = communicator.empty((1000,), "float32")
    return lambda: communicator.all_reduce(tensor, "mean")


def torch_step() -> Callable[[], object]:
    import torch

    import gcl.torch

    torch.set_num_threads(1)
    gcl.torch.init_process_group()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
    return lambda: model(torch.ones(4, 10)).sum().backward()


api, culprit, way, survivors_way = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
popdist_py.init()
rank = popdist_py.getInstanceIndex()
print(MISLEADING, file=sys.stderr, flush=True)
step = {"gcl": gcl_step, "torch": torch_step}[api]()
for number in range(10):
    if (rank, number) == (culprit, 5):
        leave(way, 3)
    try:
        step()
    except RuntimeError as error:
        print("lost a peer:", error, file=sys.stderr, flush=True)
        if survivors_way == "reraise":
            raise
        leave(survivors_way, 4)
