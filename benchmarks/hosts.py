"""Collectives between hosts against MPI and gloo: network namespaces, joined by a bridge, with an ssh server each.

As in collectives.py: every contender starts once, on all hosts; they take turns, in alternating order; results are
checked before they are timed; times are medians over the rounds, the ratio the median over rounds of fastest peer /
ours. The last column is the ratio to MPICH alone, on which ours runs. The "network" is the machine's memory, so that
processor work is compared: the hosts share the cores. MPICH uses UCX over TCP, Open MPI its TCP transport, both
otherwise with default settings.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import collectives
from collectives import KIB, MIB, ROOT, VARIANTS, Case, Team, launchers, measure
from support.ending import clean_up_when_told

sys.path.insert(0, str(ROOT))
from tests.helpers.network_namespaces import Hosts, hosts, unavailable

#: (hosts, processes on each); a quick run has the first
PLACES = [(2, 1), (4, 1), (2, 2)]
SIZES = [KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
#: (collective, dtype) -> sizes of a full run, of a quick one
CASES: dict[tuple[str, str], tuple[list[int], list[int]]] = {
    ("all-reduce", "float32"): (SIZES, [64 * KIB, MIB, 64 * MIB]),
    ("all-reduce", "float16"): ([64 * KIB, MIB, 16 * MIB], []),
    ("reduce-scatter", "float32"): (SIZES, [16 * MIB]),
    ("all-gather", "float32"): (SIZES, [16 * MIB]),
}


class HostTeam(Team):
    """The processes of one contender, spread over hosts."""

    def __init__(self, name: str, where: Hosts, per_host: int, folder: Path) -> None:
        self._where, self._per_host = where, per_host
        super().__init__(name, per_host * len(where.names), folder)

    def start(
        self, name: str, launcher: Path, processes: int, address: str, environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        names, ssh = self._where.names, self._where.ssh
        # without a list, UCX detects that the hosts are one machine, and shares memory
        inside = environment | {"UCX_TLS": "tcp,self" if self._per_host == 1 else "tcp,self,posix"}
        if "openmpi" in name:
            slots = ",".join(f"{host}:{self._per_host}" for host in names)
            flags = ["--host", slots, "--prtemca", "plm_ssh_agent", ssh, "--bind-to", "none"]
            if processes > (os.cpu_count() or 1):
                flags += ["--mca", "mpi_yield_when_idle", "1"]
        else:
            flags = ["-hosts", ",".join(names), "-ppn", self._per_host]
        settings = [f"{variable}={value}" for variable, value in inside.items()]
        program = ["env", *settings, sys.executable, collectives.__file__, "--worker", name, address]
        command = self._where.command(0, [launcher, *flags, "-n", processes, *program])
        return subprocess.Popen(command, env=os.environ | inside | {"HYDRA_LAUNCHER_EXEC": str(ssh)})


@contextmanager
def teams(count: int, per_host: int, without: list[str]) -> Iterator[dict[str, Team]]:
    """All contenders but those ``without``, started on ``count`` new hosts."""
    running: dict[str, Team] = {}
    with tempfile.TemporaryDirectory() as name, hosts(count, Path(name)) as where:
        try:
            for contender in launchers():
                if contender in without:
                    continue
                running[contender] = HostTeam(contender, where, per_host, Path(name))
            yield running
        finally:
            for team in running.values():
                team.stop()


def measurements(
    count: int, per_host: int, contenders: dict[str, Team], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """The cases whose name begins with ``options.only``, of ``options.sizes`` in KiB (all if empty)."""
    rounds, budget = (3, 0.1) if options.quick else (5, 0.3)
    for (what, dtype), (full_sizes, quick_sizes) in CASES.items():
        for nbytes in quick_sizes if options.quick else full_sizes:
            if f"{what} {dtype}".startswith(options.only) and (not options.sizes or nbytes // KIB in options.sizes):
                case = Case(what, dtype, count * per_host, nbytes)
                row = measure(case, contenders, rounds=options.rounds or rounds, budget=budget)
                yield row | {"case": f"{count} hosts x {per_host}: {row['case']}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds; takes less than 50 s")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows to FILE")
    parser.add_argument("--hosts", type=int, default=0, help="only this number of hosts")
    parser.add_argument("--only", default="", metavar="COLLECTIVE", help="only cases whose name begins like this")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of each case (default 5; quick: 3)")
    parser.add_argument("--without", nargs="+", default=[], metavar="CONTENDER", help="leave out these contenders")
    parser.add_argument("--processes", type=int, default=0, help="only with so many processes on each host")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="KIB", default=[], help="only these sizes")
    options = parser.parse_args()
    clean_up_when_told()
    if unavailable:
        raise SystemExit(f"hosts are network namespaces here, which cannot be made: {unavailable}")
    rows: list[dict[str, Any]] = []
    print(f"{os.cpu_count()} cores; microseconds per call, ratio = fastest peer / ours", flush=True)
    contenders = [name for name in launchers() if name not in ["ours", *options.without]]
    names = [variant for name in contenders for variant in VARIANTS.get(name, [name])]
    print(f"{'case':<50}{'ours':>10}" + "".join(f"{name:>18}" for name in names) + f"{'ratio':>8}{'MPICH':>8}")
    wanted = (options.hosts, options.processes)
    places = [place for place in PLACES if all(want in (0, own) for want, own in zip(wanted, place, strict=True))]
    for count, per_host in places[:1] if options.quick else places:
        with teams(count, per_host, options.without) as running:
            for row in measurements(count, per_host, running, options):
                rows.append(row)
                peers = "".join(f"{row['peers'].get(name, float('nan')):>18.1f}" for name in names)
                print(
                    f"{row['case']:<50}{row['ours']:>10.1f}{peers}{row['ratio']:>8.2f}{row['own MPI']:>8.2f}",
                    flush=True,
                )
                if options.json:  # immediately: a long run may be interrupted
                    options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
