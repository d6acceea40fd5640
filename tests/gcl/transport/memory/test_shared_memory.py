"""Ranks that are processes of one host (what is in their memory: test_processes)."""

import json
from pathlib import Path

from tests.helpers.mpi_jobs import run_job


def test_processes_see_each_others_memory_and_each_others_end(tmp_path: Path) -> None:
    program = """
    import json, os, resource, signal, time
    import numpy as np
    import popdist_py
    from gcl import TransportError
    from gcl.transport.memory import shared_memory

    popdist_py.init()
    backend = popdist_py.host_backend()
    rank, ranks = backend.rank, backend.size

    def join(nbytes=1 << 20):
        return shared_memory.domain(rank=rank, ranks=ranks, all_gather=backend.all_gather, segment_bytes=nbytes)

    domain = join()
    domain.write_text(f"rank {rank}")
    mine = domain.segment.empty((4,), np.dtype(np.float32))
    mine[...] = rank
    popdist_py.synchronize()
    texts = [domain.read_text(peer) for peer in range(ranks)]
    offset = domain.segment.offset_of(mine)

    def at(address):
        return float(np.ctypeslib.as_array((__import__("ctypes").c_float * 4).from_address(address))[0])

    values = [at(start + offset) for start in domain.arenas]
    alive = [domain.alive(peer) for peer in range(ranks)]
    popdist_py.synchronize()

    # one rank that cannot map its peers is an error on all of them
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, limits[1]))
    try:
        join(64 << 30)
        fault = "none"
    except TransportError as error:
        fault = str(error)
    resource.setrlimit(resource.RLIMIT_AS, limits)

    popdist_py.synchronize()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    deadline = time.monotonic() + 20
    while domain.alive(2) and time.monotonic() < deadline:
        time.sleep(0.01)
    print(json.dumps([texts, values, alive, domain.cores, fault, domain.alive(2)]))
    os._exit(0)
    """
    ended = run_job(program, tmp_path, counts=(1, 1, 1))
    assert ended.out[0], ended.err
    assert ended.out[0] == ended.out[1]
    texts, values, alive, cores, fault, after = json.loads(ended.out[0])
    assert texts == ["rank 0", "rank 1", "rank 2"]
    assert values == [0.0, 1.0, 2.0]
    assert alive == [True, True, True]
    assert cores >= 1
    assert fault.startswith("rank 1 cannot map its peers' memory: 65536 MiB of address space")
    assert fault.endswith("use transport='mpi'")
    assert after is False


def test_communicators_that_were_closed_hold_no_descriptors(tmp_path: Path) -> None:
    """Also while the program still holds them, and their tensors."""
    program = """
    import os
    from tests.gcl.helpers.instance import connect

    counts, kept = [], []
    for i in range(300):
        communicator = connect(segment_bytes=1 << 20)
        kept.append((communicator, communicator.all_reduce(communicator.empty(5) + i)))
        communicator.close()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[0] + 2, counts
    assert all((tensor == 2 * i).all() for i, (_, tensor) in enumerate(kept))
    print("fine")
    """
    assert run_job(program, tmp_path).succeeded().out == ["fine\n"] * 2
