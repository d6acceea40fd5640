"""End, or fail, in the way that the argument names: ``endings.py NAME``."""

import os
import signal
import sys
import time
import traceback


def tidy_up() -> None:
    try:
        print("READY", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        os.write(1, b"tidied up\n")


def continue_after_ctrl_c() -> None:
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b"SEEN\n"))  # print is not reentrant
    print("READY", flush=True)
    while True:
        time.sleep(60)


def raise_in_instance_1() -> None:
    if os.environ["POPDIST_REPLICA_INDEX_OFFSET"] == "1":
        raise ValueError("my mistake")
    time.sleep(60)


def abort_in_instance_1() -> None:
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    if MPI.COMM_WORLD.rank == 1:
        MPI.COMM_WORLD.Abort(7)
    time.sleep(60)


def raise_with_mpi() -> None:
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank:
        raise ValueError("mine")
    time.sleep(60)


def exit_with_mpi() -> None:
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank:
        sys.exit(3)
    time.sleep(60)


def print_a_traceback_and_continue() -> None:
    from mpi4py import MPI  # noqa: F401 (it calls MPI_Init)

    try:
        _ = 1 / 0
    except ZeroDivisionError:
        traceback.print_exc()
    time.sleep(2.5)
    print("fine")


def die_while_a_segment_is_made(name: str) -> None:
    open(f"/dev/shm/{name}", "x").close()
    os.kill(os.getpid(), signal.SIGKILL)


def kill_the_supervisor_once() -> None:
    if os.environ["POPDIST_RESTART_COUNT"] == "0":
        os.kill(os.getppid(), signal.SIGKILL)
    print("well")


def fail_after_100_lines() -> None:
    for number in range(100):
        print(number, file=sys.stderr)
    sys.exit(5)


globals()[sys.argv[1]](*sys.argv[2:])
