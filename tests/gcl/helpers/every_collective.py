"""Every collective: all cases of collective x operator x dtype x group x transport x size x number of replicas.

    python -m tests.gcl.helpers.every_collective [--quick] [--replicas 8 16]

Two processes, one of them with a single replica, for each number of replicas and kind of group; the first process
alone runs the cases between threads. Tensors are in each kind of memory in turn. test_pairwise_cases.py runs a sample
of these cases.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from gcl import Communicator, GclError, Group, connect_threads
from tests.gcl.helpers import reference
from tests.gcl.helpers.checks import MEMORY
from tests.gcl.helpers.instance import connect
from tests.gcl.helpers.pairwise_cases import GROUPINGS, REPLICAS, SIZES, TRANSPORTS, fits
from tests.gcl.helpers.reference import OPERATORS_OF, draw, same_bits
from tests.gcl.helpers.threads import on_ranks
from tests.helpers.mpi_jobs import PROGRAMS, run_job

__all__ = ["work"]

_FEW = (1, 2, 3, 4)
_TIMEOUT = 300.0
_HOUR = 3600.0
_PROGRAM = PROGRAMS / "gcl/collectives/every_case.py"


class Case(NamedTuple):
    """``call`` on the local rows of ``given`` must give those of ``expected``; both are [replicas, ...]."""

    name: str
    call: Callable[[Communicator, np.ndarray], np.ndarray]
    inputs: np.ndarray
    expected: np.ndarray | list[np.ndarray]


def cases(data: np.ndarray, dtype: type, group: Group) -> Iterator[Case]:
    """Every collective and operator on ``data`` [replicas, n]."""
    n, size = data.shape[1], group.size
    for op in OPERATORS_OF[dtype]:
        with np.errstate(all="ignore"):
            total = reference.all_reduce(data, op, group)
        yield Case(f"all_reduce {op}", lambda c, x, op=op: c.all_reduce(x, op), data, total)
        yield Case(f"all_reduce {op} in place", lambda c, x, op=op: c.all_reduce(x, op, out=x), data, total)
        shards = reference.scattered(total, group)
        yield Case(f"reduce_scatter {op}", lambda c, x, op=op: c.reduce_scatter(x, op), data, shards)
    members = [data[group.members(group.of(replica))] for replica in range(len(data))]
    yield Case("all_gather", lambda c, x: c.all_gather(x), data, members)
    root = n % size
    yield Case("broadcast", lambda c, x: c.broadcast(x, root), data, reference.broadcast(data, root, group))
    slices = np.zeros((len(data), size, -(-n // size)), dtype)
    slices.reshape(len(data), -1)[:, :n] = data
    yield Case("all_to_all", lambda c, x: c.all_to_all(x), slices, reference.all_to_all(slices, group))


def wrong(communicator: Communicator, case: Case, where: str) -> str:
    """How the result of ``case`` on this rank is wrong; "" if it is right."""
    first, local = communicator.global_offset, communicator.local_replicas
    x = MEMORY[where](communicator, case.inputs[first : first + local])
    try:
        result = case.call(communicator, x)
    except GclError as error:
        return f"{type(error).__name__}: {error}"
    fine = all(same_bits(result[row], case.expected[first + row]) for row in range(local))
    return "" if fine else "other bits"


def work(replicas: int, grouping: str, sizes: Iterable[int]) -> None:
    """Run as one of the processes: print the number of cases, and those that failed here."""
    group = GROUPINGS[grouping](replicas)
    between = {name: connect(transport=name, group=group, timeout=_TIMEOUT) for name in TRANSPORTS[1:]}
    counts = (1, replicas - 1) if replicas > 1 else (1,)
    threads = connect_threads(counts, group=group, timeout=_TIMEOUT)
    alone = next(iter(between.values())).global_offset == 0
    number, tried, failures = count(), 0, []
    for n, dtype in product(sizes, OPERATORS_OF):
        for case in cases(draw(replicas, n, dtype), dtype, group):
            where = list(MEMORY)[next(number) % len(MEMORY)]
            said = {name: wrong(communicator, case, where) for name, communicator in between.items()}
            if alone:
                faults = on_ranks(threads, lambda c, case=case, where=where: wrong(c, case, where))
                said["inprocess"] = "".join(faults)
            tried += len(TRANSPORTS)
            what = f"{case.name} of {n} x {np.dtype(dtype)}, {replicas} replicas, {grouping}, {where}"
            failures += [f"{what}, {name}: {text}" for name, text in said.items() if text]
    print(json.dumps([tried, failures]))


def run(replicas: int, grouping: str, sizes: Iterable[int]) -> tuple[int, list[str]]:
    """The number of cases, and those that failed in any process."""
    counts = (1, replicas - 1) if replicas > 1 else (1,)
    with TemporaryDirectory() as folder:
        job = run_job(_PROGRAM, Path(folder), replicas, grouping, *sizes, counts=counts, timeout=_HOUR)
    said = [json.loads(out) for out in job.succeeded().out]
    return said[0][0], [f"process {i}: {text}" for i, (_, failures) in enumerate(said) for text in failures]


def main() -> None:
    """Run the parts one after the other."""
    parser = argparse.ArgumentParser(description="Every collective, operator, dtype, group, transport and size.")
    parser.add_argument("--quick", action="store_true", help="small tensors, few replicas unless they are given")
    parser.add_argument("--replicas", type=int, nargs="+", choices=REPLICAS)
    arguments = parser.parse_args()
    sizes = SIZES[:-1] if arguments.quick else SIZES
    replicas = arguments.replicas or (_FEW if arguments.quick else REPLICAS)
    tried, failures = 0, []
    for n, grouping in product(replicas, GROUPINGS):
        if fits(n, grouping):
            started = time.monotonic()
            more, failed = run(n, grouping, sizes)
            seconds = time.monotonic() - started
            print(f"{n:2} replicas, {grouping:11}  {more:6,} cases, {len(failed)} fail  {seconds:5.0f} s", flush=True)
            tried, failures = tried + more, failures + failed
    print(f"{tried:,} cases, {len(failures)} fail")
    print("\n".join(failures[:100]))
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
