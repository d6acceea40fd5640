"""Benchmark: ``python -m gcl.bench`` times collectives as nccl-tests does, and checks their results."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import pack, unpack
from typing import Any

import click
import numpy as np

import popdist_py
from gcl.cli.bench_table import Row, RunHeader, Timing, document, heading, line, summary, wrong
from gcl.cli.bench_trial import BenchCase, BenchTrial, bus_factor, trials
from gcl.cli.output_file import check_writable, write_text
from gcl.cli.usage_errors import UsageErrors
from gcl.communicator import Communicator
from gcl.connect import TRANSPORT_VARIABLE, connect
from gcl.core.operators import Operator
from gcl.core.request import REDUCING, Collective
from gcl.cost.program_cost import price
from gcl.drawing.terminal_help import FittedContext
from gcl.drawing.units import parse_bytes
from gcl.errors import ArgumentError, GclError
from gcl.kernels.dtypes import DTYPES
from gcl.literal.literal_path import LiteralCommunicator, default_fabric
from gcl.scheduling.methods.method import Method, method_chain
from gcl.scheduling.options import Options
from gcl.scheduling.schedule import schedule
from gcl.transport.memory.segment import DEFAULT_BYTES
from popdist_py.messages.named_choice import NamedChoice
from popdist_py.messages.short_commands import ShortMessages

__all__ = ["main"]

#: The most replicas of one process; with more, computing the modelled time takes more than a few seconds per row.
_MOST_REPLICAS = 512

#: LOCAL moves nothing, so there is nothing to time.
_TIMED = [op for op in Operator if op is not Operator.LOCAL]

_HELP = """Time collectives between replicas, as nccl-tests does, and check their results.

\b
Examples
  python -m gcl.bench --local-replicas 4 -b 1KiB -e 64MiB -f 4
      four replicas of this one process
  poprun-py --num-instances 4 python -m gcl.bench -b 1KiB -e 64MiB -f 4
      four processes that share memory, one replica each
  poprun-py --num-instances 4 python -m gcl.bench --dtype float16 --op mean --private
      half precision, with numpy arrays instead of tensors allocated by the communicator
  poprun-py --num-instances 4 python -m gcl.bench --method meet_in_middle_ring
      the step program of that method, run literally

\b
How to read the table
  size     bytes: of the tensor; of the whole input (reduce_scatter) or result (all_gather)
  time     wall time of one call on the slowest rank, averaged over the timed calls
  algbw    size / time, in GB/s of 10^9 bytes
  busbw    algbw x a factor per collective, the rate of the busiest link: all_reduce 2(n-1)/n,
           reduce_scatter, all_gather and all_to_all (n-1)/n, broadcast 1, in groups of n
  #wrong   elements, over all ranks, that differ from the expected result
  IPU      modelled time on IPUs, for the same number of single-IPU replicas on a ladder
In place: the result replaces the input (all_gather: the shards are slices of one shared tensor).
"""


@click.command(
    cls=ShortMessages, help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("-b", "--min-bytes", default="1KiB", show_default=True, help="Smallest size.")
@click.option("-e", "--max-bytes", default="16MiB", show_default=True, help="Largest size.")
@click.option(
    "-f",
    "--factor",
    type=click.FloatRange(1, min_open=True),
    default=4,
    show_default=True,
    help="Ratio of successive sizes.",
)
@click.option("--collective", type=NamedChoice(list(map(str, Collective))), default="all_reduce", show_default=True)
@click.option("--dtype", type=NamedChoice(list(map(str, DTYPES))), default="float32", show_default=True)
@click.option("--op", help=f"{', '.join(_TIMED)}.  [default: add; logical_or of bool]")
@click.option("--method", help=f"{', '.join(Method)}; a chain: A,B.  [default: GCL_OPTIONS, else auto]")
@click.option("--private", is_flag=True, help="Use numpy arrays instead of tensors allocated by the communicator.")
@click.option("-n", "--iters", type=click.IntRange(min=1), default=20, show_default=True, help="Timed calls.")
@click.option(
    "-w",
    "--warmup",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Untimed calls.",
)
@click.option("--check/--no-check", default=True, show_default=True, help="Compare results with numpy.")
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the results to this file as well.",
)
@click.option(
    "--local-replicas",
    type=click.IntRange(1, _MOST_REPLICAS),
    help="Replicas of this process, without poprun-py.  [default: 2]",
)
def main(
    min_bytes: str,
    max_bytes: str,
    factor: float,
    collective: str,
    dtype: str,
    op: str | None,
    method: str | None,
    private: bool,
    iters: int,
    warmup: int,
    check: bool,
    json_path: Path | None,
    local_replicas: int | None,
) -> None:
    """Parse the options, connect, measure, print."""
    kind = next(element for element in DTYPES if str(element) == dtype)
    faults = UsageErrors()
    name = faults.of(lambda: _operator(op, kind))
    local = faults.of(lambda: _local_replicas(local_replicas))
    sizes = faults.of(lambda: list(_sizes(min_bytes, max_bytes, factor, local or 1)))
    faults.of(lambda: method_chain(Method.AUTO if method is None else method))
    faults.of(lambda: Options.from_environ(os.environ))
    faults.of(lambda: check_writable(json_path, "--json"))
    faults.check()
    joined = faults.of(lambda: _join(method, local or 1))
    if name is None or sizes is None or joined is None:
        raise faults.error()
    communicator, share = joined
    measure = _Measure(communicator, share, iters, warmup, check)
    run = RunHeader(
        collective,
        communicator.global_replicas,
        len(share(b"")),
        communicator.transport,
        ",".join(measure.methods),
    )
    # every rank measures, the first one prints
    say = click.echo if communicator.global_offset == 0 else lambda _: None
    say(heading(run))
    rows = []
    try:
        for size in sizes:
            rows.append(measure.row(BenchCase(Collective(collective), kind, name, size, private)))
            say(line(rows[-1]))
    except GclError as error:
        raise click.ClickException(str(error)) from None
    say(summary(rows))
    communicator.close()
    if json_path is not None and communicator.global_offset == 0:
        faults.of(lambda: write_text(json_path, document(run, rows), "--json"))
        faults.check()
    if wrong(rows):
        raise SystemExit(1)


Share = Callable[[bytes], list[bytes]]


def _local_replicas(requested: int | None) -> int:
    """Replicas of this process: those that poprun-py set, else ``requested``."""
    if not popdist_py.isPopdistEnvSet():
        return requested or 2
    local = popdist_py.getNumLocalReplicas()
    if requested not in (None, local):
        raise ArgumentError(
            f"--local-replicas {requested} differs from the {local} that poprun-py set; leave it out under poprun-py"
        )
    return local


def _join(method: str | None, local: int) -> tuple[Communicator, Share]:
    """A communicator of all replicas of the job, and a function that all-gathers a few bytes between its ranks."""
    if not popdist_py.isPopdistEnvSet():
        if os.environ.get(TRANSPORT_VARIABLE) == "mpi":
            popdist_py.init()
        return connect(local_replicas=local, method=method), lambda data: [data]
    popdist_py.init()
    communicator = connect(
        local_replicas=local,
        global_offset=popdist_py.getReplicaIndexOffset(),
        global_replicas=popdist_py.getNumTotalReplicas(),
        method=method,
    )
    return communicator, popdist_py.host_backend().all_gather


@dataclass(frozen=True)
class _Measure:
    """Measures one row of the table."""

    communicator: Communicator
    share: Share
    iters: int
    warmup: int
    check: bool

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods of the communicator, from --method or from GCL_OPTIONS."""
        if isinstance(self.communicator, LiteralCommunicator):
            return self.communicator.methods
        return (Method.AUTO,)

    def row(self, case: BenchCase) -> Row:
        size = self.communicator.group.size
        timings = [self._timing(case, trial) for trial in trials(case, self.communicator)]
        reduces = case.collective in REDUCING
        return Row(
            size=case.elements(size) * case.dtype.itemsize,
            count=case.input_elements(size),
            type=str(case.dtype),
            redop=str(case.op) if reduces else "none",
            root=case.root if case.collective is Collective.BROADCAST else -1,
            out_of_place=timings[0],
            in_place=timings[1] if len(timings) > 1 else None,
            modelled_us=_modelled(case, self.communicator),
        )

    def _timing(self, case: BenchCase, trial: BenchTrial) -> Timing:
        wrong = trial.wrong() if self.check else 0
        seconds = trial.seconds(self.communicator, self.iters, self.warmup)
        everyone = [unpack("<dq", reply) for reply in self.share(pack("<dq", seconds, wrong))]
        slowest = max(seconds for seconds, _ in everyone)
        size = self.communicator.group.size
        algbw = case.elements(size) * case.dtype.itemsize / slowest / 1e9
        total = sum(wrong for _, wrong in everyone) if self.check else None
        return Timing(slowest * 1e6, algbw, algbw * bus_factor(case.collective, size), total)


def _modelled(case: BenchCase, communicator: Communicator) -> float | None:
    """Modelled microseconds on IPUs, None if the fabric has no model."""
    elements, itemsize = case.input_elements(communicator.group.size), case.dtype.itemsize
    try:
        if isinstance(communicator, LiteralCommunicator):
            plan = communicator.schedule_for(case.collective, elements, itemsize)
        else:
            fabric = default_fabric(communicator.global_replicas)
            options = Options.from_environ(os.environ)
            plan = schedule(case.collective, fabric, elements, itemsize=itemsize, options=options)
        return price(plan).total.seconds * 1e6
    except ArgumentError:
        return None


def _operator(name: str | None, dtype: np.dtype[Any]) -> Operator:
    operator = Operator.parse(name or ("logical_or" if dtype == np.bool_ else "add"), dtype)
    if operator is Operator.LOCAL:
        raise ArgumentError("operator local moves nothing, so there is nothing to time; use another --op")
    return operator


def _sizes(min_bytes: str, max_bytes: str, factor: float, local: int) -> Iterator[int]:
    """The sizes of the rows; ArgumentError if input and result of ``local`` replicas exceed the segment."""
    least, most = parse_bytes(min_bytes, "--min-bytes"), parse_bytes(max_bytes, "--max-bytes")
    if most < least:
        raise ArgumentError(f"there is no size from {min_bytes} up to {max_bytes}; -b must be at most -e")
    if most < 1:
        raise ArgumentError(f"-e {max_bytes} leaves nothing to time; use at least 1 byte")
    if 2 * local * most > DEFAULT_BYTES:
        raise ArgumentError(
            f"-e {max_bytes} is too large: {local} replicas of this process have a tensor and a result of that size "
            f"each, and their memory is {DEFAULT_BYTES >> 20} MiB; use at most "
            f"-e {DEFAULT_BYTES // (2 * local) >> 20}MiB"
        )
    if not math.isfinite(factor):
        raise ArgumentError(f"-f {factor} is not valid; give a number above 1, such as 2")
    size = float(max(1, least))
    while size <= most:
        yield int(size)
        size = max(size * factor, size + 1)


main.context_class = FittedContext

if __name__ == "__main__":
    main(prog_name="python -m gcl.bench")
