"""Overlap of the reduction of gradients with the backward pass, between two hosts whose links have a limited rate.

    python benchmarks/overlap.py [--quick] [--json FILE] [--cases gpt2 resnet18] [--rates 200mbit 1gbit]

A training step of networks of models.py on two hosts (network namespaces), one process each: gradients reduced as
soon as they are complete (ours), after the backward pass (``IPU_EMU_REDUCE_EARLY=0``), and by PyTorch's
DistributedDataParallel over gloo, which overlaps them too. Contenders are started in turns; a number is the wall time
of a step of the slower process, the median over rounds. Losses have the same bits early and late, which is checked
first. A last row has the fraction of the time of reductions before the end of the backward pass, from a trace.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from support.extras import need

need("torch", extra="bench")

from support.ending import clean_up_when_told, terminate
from support.rounds import Row, measured_in_turns, report, row_of_times
from support.two_processes import last_words, medians_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from ipu_emu.trace import read_run
from tests.helpers.network_namespaces import Hosts, hosts, unavailable

MODELS = str(ROOT / "benchmarks/models.py")
EARLY, LATE, DDP = "early", "after the backward pass", "DDP + gloo"
CASES, RATES = ["gpt2"], ["200mbit", "1gbit"]
BIN = Path(sys.executable).parent


def commands(name: str, case: str, seconds: float, where: Hosts, *variables: str) -> list[list[str]]:
    """The commands of a contender: one that starts both processes, or one for each host."""
    program = [sys.executable, MODELS, "--seconds", str(seconds), "--cases", case, "--worker"]
    if name != DDP:
        early = f"IPU_EMU_REDUCE_EARLY={int(name == EARLY)}"
        options = ["--host", ",".join(where.names), "--num-instances", "2", "--num-replicas", "2"]
        launched = [str(BIN / "poprun-py"), *options, "env", early, *variables, *program, "ours"]
        return [where.command(0, launched)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    torchrun += ["--master-addr", where.address(0), "--master-port", "29534"]
    return [
        where.command(
            host, ["env", f"GLOO_SOCKET_IFNAME=v{host}", *torchrun, "--node-rank", host, *program[1:], "pytorch"]
        )
        for host in range(2)
    ]


def outputs(name: str, case: str, seconds: float, where: Hosts, *variables: str) -> str:
    """What the processes of a contender print, started together.

    Raise SystemExit if one of ours fails, and RuntimeError if one of the peer does.
    """
    network = {"POPRUN_PY_SSH": str(where.ssh), "UCX_TLS": "tcp,self", "OMP_NUM_THREADS": "1"}
    text, pipes = "", {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with ExitStack() as started:
        running = []
        for command in commands(name, case, seconds, where, *variables):
            process = subprocess.Popen(command, text=True, env=os.environ | network, **pipes)  # type: ignore[call-overload]
            started.callback(terminate, process)
            running.append(process)
        for process in running:
            out, err = process.communicate(timeout=240)
            if process.returncode:
                if name == DDP:
                    raise RuntimeError(last_words(process.returncode, err))
                raise SystemExit(f"overlap.py: {name}, {case} failed:\n{out}{err}")
            text += out
    return text


def slower_ms(name: str, case: str, seconds: float, where: Hosts) -> float:
    """The median milliseconds of a step of the slower process."""
    medians = medians_of(outputs(name, case, seconds, where))
    if len(medians) != 2:
        raise RuntimeError(f"{name}, {case}: {len(medians)} of 2 processes have measured")
    return max(medians)


def share_before_the_end(case: str, seconds: float, where: Hosts, folder: Path) -> float:
    """The fraction of the time of all-reduces in background threads before the main thread waits for them."""
    outputs(EARLY, case, seconds, where, f"IPU_EMU_TRACE={folder}")
    before = total = 0.0
    for process in read_run(folder).instances:
        names = {number: name.name for number, name in process.trace.names.items()}
        spans = [(names[int(s["name"])], int(s["thread"]), int(s["begin"]), int(s["end"])) for s in process.spans]
        waits = sorted(begin for name, _, begin, _ in spans if name == "AllReduce")[1:]  # the first is the warm-up
        for name, thread, begin, end in spans:
            if name == "all_reduce" and thread != process.main_thread:
                wait = next((at for at in waits if at > begin), None)
                if wait is not None and begin > waits[0]:
                    before, total = before + max(0, min(end, wait) - begin), total + end - begin
    return before / total


@contextmanager
def linked(rate: str) -> Iterator[Hosts]:
    """Two hosts whose links have ``rate``."""
    with tempfile.TemporaryDirectory() as folder, hosts(2, Path(folder)) as where:
        where.limit(rate)
        yield where


def measured(cases: Sequence[str], rates: Sequence[str], *, rounds: int, seconds: float) -> Iterator[Row]:
    """Two rows for each case and rate, and one with the share that overlaps."""
    for rate in rates:
        with linked(rate) as where:
            for case in cases:
                contenders = {name: partial(slower_ms, name, case, seconds, where) for name in (EARLY, LATE, DDP)}
                times, failed = measured_in_turns(contenders, [EARLY, LATE], rounds)
                label = f"{case}, 2 hosts, {re.sub('([mg])bit', lambda match: f' {match[1].upper()}bit/s', rate)}"
                yield row_of_times(f"{label}, early or after the backward pass", times, EARLY, LATE)
                yield row_of_times(f"{label}, training", times, EARLY, DDP, failed=failed)
                with tempfile.TemporaryDirectory() as folder:
                    share = share_before_the_end(case, seconds, where, Path(folder))
                yield Row(f"{label}, reduction time before the end of the backward pass", "share", share, {}, share)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of one network and rate; under 50 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--cases", nargs="*", default=[], help=f"networks of models.py (default: {' '.join(CASES)})")
    parser.add_argument("--rates", nargs="*", default=[], help=f"rates, as tc says them (default: {' '.join(RATES)})")
    parser.add_argument("--rounds", type=int, default=0, help="rounds in which the contenders take turns (default 5)")
    options = parser.parse_args()
    clean_up_when_told()
    if unavailable:
        raise SystemExit(f"hosts are network namespaces here, which cannot be made: {unavailable}")
    cases, rates = options.cases or CASES, options.rates or RATES
    if options.quick:
        cases, rates = cases[:1], rates[:1]
    rounds = options.rounds or (1 if options.quick else 5)
    report(measured(cases, rates, rounds=rounds, seconds=1.0), options.json)


if __name__ == "__main__":
    main()
