"""Scale of hosts: the cost of many instances: time to start, memory, and the launcher itself.

    python benchmarks/scale_of_hosts.py [--quick] [--json FILE]

started    64 x `echo`: seconds until the last line, beside mpirun alone
correct    128 instances (64 with --quick) of a Python program that joins a communicator of all: sums, gathers and
           scatters of known values; megabytes of an instance that no other process shares, and its part of what the
           processes of the job share; libraries apart
launched   1,000 instances: processor time and memory of the launcher for each, as the difference to a job of 8. A
           stand-in for mpirun and all hosts answers the launcher as their supervisors do, and starts no programs.

There are more instances than cores, to simulate a large host. A limit is the target of this project.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import selectors
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from support.ending import clean_up_when_told, finished
from support.rounds import Row, report

HERE = Path(__file__).resolve()
BIN = Path(sys.executable).parent
POPRUN, MPIRUN = str(BIN / "poprun-py"), str(BIN / "mpirun")
AS_ROOT = {f"{family}_ALLOW_RUN_AS_ROOT{suffix}": "1" for family in ("OMPI", "PRTE") for suffix in ("", "_CONFIRM")}
#: Number of instances for which the stand-in answers.
COUNT_VARIABLE = "SCALE_OF_HOSTS_INSTANCES"
MANY, FEW = 1000, 8

#: An instance of the second case; prints megabytes of memory that is anonymous or shared by the job.
PROGRAM = """
import re
import numpy as np
import gcl, popdist_py as popdist
popdist.init()
rank, count = popdist.getInstanceIndex(), popdist.getNumInstances()
communicator = gcl.connect(local_replicas=1, global_offset=rank, global_replicas=count)
x = communicator.empty((4 * count,), "float32")
x[:] = np.arange(4 * count) + rank
total = np.asarray(communicator.all_reduce(x, "add")).reshape(-1)
ranks = count * (count - 1) // 2
assert np.array_equal(total, np.arange(4 * count) * count + ranks), "all-reduce"
part = np.asarray(communicator.reduce_scatter(x, "add")).reshape(-1)
assert np.array_equal(part, total[4 * rank : 4 * rank + 4]), "reduce-scatter"
whole = np.asarray(communicator.all_gather(np.full((1, 3), rank, np.float32))).reshape(-1)
assert np.array_equal(whole, np.repeat(np.arange(count), 3)), "all-gather"
parts = dict(re.findall(r"(Pss_Anon|Pss_Shmem): +([0-9]+) kB", open("/proc/self/smaps_rollup").read()))
communicator.barrier()
print("CORRECT", sum(map(int, parts.values())) * 1024 / 1e6, flush=True)
"""


def finished_well(command: Sequence[str], timeout: float, **variables: str) -> str:
    """The output of ``command``."""
    environment = os.environ | AS_ROOT | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | variables
    done = finished(command, timeout=timeout, env=environment)
    if done.returncode:
        raise SystemExit(
            f"scale_of_hosts.py: {' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


# Starting


def started(count: int, rounds: int) -> Row:
    program = ["sh", "-c", "echo here"]
    commands = {
        "poprun-py": [POPRUN, "--mpi", MPIRUN, "--num-instances", str(count), *program],
        "mpirun": [MPIRUN, "-n", str(count), *program],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds):
        for name in list(commands) if number % 2 else list(reversed(commands)):
            begin = time.perf_counter()
            lines = finished_well(commands[name], 120).count("here")
            times[name].append(time.perf_counter() - begin)
            assert lines == count, f"{name}: {lines} of {count} lines"
    ours, mpirun = (statistics.median(values) for values in times.values())
    return Row(f"start and end {count} instances", "s", ours, {"limit": 3.0, "mpirun": mpirun}, 3.0 / ours)


# Correctness and memory


def correct(count: int) -> Row:
    command = [POPRUN, "--mpi", MPIRUN, "--num-instances", str(count), "--num-replicas", str(count)]
    megabytes = re.findall(r"CORRECT ([\d.]+)", finished_well([*command, sys.executable, "-c", PROGRAM], 300))
    assert len(megabytes) == count, f"{len(megabytes)} of {count} instances have correct collectives"
    worst = max(map(float, megabytes))
    return Row(f"{count} instances, collectives correct, memory of each", "MB", worst, {"limit": 120.0}, 120 / worst)


# The launcher


def launched() -> Iterator[Row]:
    """Processor time and memory of a launcher of many instances, less that of one of few, for each."""
    with tempfile.TemporaryDirectory() as folder:
        mpirun = Path(folder) / "mpirun"
        mpirun.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE}" --stand-in\n')
        mpirun.chmod(0o755)
        (mpirun.parent / "hydra_pmi_proxy").touch()  # identifies it as an MPICH
        few, many = (launcher_cost(str(mpirun), count) for count in (FEW, MANY))
    milliseconds = 1e3 * (many[0] - few[0]) / (MANY - FEW)
    kilobytes = (many[1] - few[1]) / (MANY - FEW)
    yield Row(f"launcher of {MANY} instances, time for each", "ms", milliseconds, {"limit": 1.0}, 1 / milliseconds)
    yield Row(f"launcher of {MANY} instances, memory for each", "kB", kilobytes, {"limit": 100.0}, 100 / kilobytes)


def launcher_cost(mpirun: str, count: int) -> tuple[float, float]:
    """(seconds of processor time, kilobytes) of the launcher of a job, as the median of three."""
    arguments = ["--mpi", mpirun, "--num-instances", str(count), "--num-replicas", str(count), "true"]
    command = [sys.executable, str(HERE), "--launcher", *arguments]
    runs = [finished_well(command, 120, **{COUNT_VARIABLE: str(count)}) for _ in range(3)]
    costs = [re.findall(r"LAUNCHER ([\d.]+) ([\d.]+)", run)[0] for run in runs]
    return statistics.median(float(cost[0]) for cost in costs), statistics.median(float(cost[1]) for cost in costs)


def launcher(arguments: list[str]) -> None:
    """Run as the launcher of a job, and print its cost."""
    from poprun_py.cli.dispatch import execute

    code = execute(arguments)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    most = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert most
    print(f"LAUNCHER {usage.ru_utime + usage.ru_stime} {most[1]}", flush=True)
    os._exit(code)


def stand_in() -> None:
    """Answer the launcher as the supervisors of all instances do, until it sends Leave."""
    from poprun_py.linux.limits import allow_open_files
    from poprun_py.wire import messages
    from poprun_py.wire.channel import Channel, connect
    from poprun_py.wire.variables import ADDRESS_VARIABLE, KEY_VARIABLE

    count, address = int(os.environ[COUNT_VARIABLE]), os.environ[ADDRESS_VARIABLE]
    key = bytes.fromhex(os.environ[KEY_VARIABLE])
    allow_open_files(count)
    selector = selectors.DefaultSelector()

    def answer(channel: Channel) -> bool:
        """Whether the launcher has let this one go."""
        for message in channel.receive():
            match message:
                case messages.Start():
                    channel.send(messages.Started(os.getpid(), [0], [0], "", time.monotonic()))
                    channel.send(messages.Output(messages.STDOUT, b"here\n"))
                    channel.send(messages.Exited(0, messages.OWN, time.monotonic()))
                    channel.send(messages.Gone())
                case messages.Leave():
                    return True
        return False

    for rank in range(count):
        channel = connect(address, key, timeout=20)
        channel.send(messages.Hello(rank, os.uname().nodename, os.getpid()))
        selector.register(channel, selectors.EVENT_READ)
    while count:
        for event, _ in selector.select():
            channel = event.fileobj  # type: ignore[assignment]
            if answer(channel):
                selector.unregister(channel)
                count -= 1


def rows(*, quick: bool) -> Iterator[Row]:
    yield started(64, 1 if quick else 5)
    yield correct(64 if quick else 128)
    yield from launched()


def main() -> None:
    parser = argparse.ArgumentParser(description="What many instances cost: start, memory, and in the launcher.")
    parser.add_argument("--quick", action="store_true", help="64 instances, one round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--stand-in", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--launcher", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stand_in:
        stand_in()
        return
    if args.launcher:
        launcher(args.launcher)
        return
    clean_up_when_told()
    report(rows(quick=args.quick), args.json)


if __name__ == "__main__":
    main()
