"""Notes: what a job asks for that has no effect here, or that real IPUs would not give; said before it starts."""

from __future__ import annotations

from collections.abc import Iterator

from poprun_py.numa.topology import NumaTopology
from poprun_py.options.option_table import LaunchOptions
from poprun_py.options.system_size import partition_size

#: Options that PopRun has and that have no effect: the field, its option, and why.
_WITHOUT_EFFECT = (
    ("synchronise_python_venv", "every host needs the virtual environment at the same path"),
    ("synchronise_poplar_sdk", "there is no SDK to copy"),
    ("distribute_ssh_key", "distribute the keys yourself"),
)

#: Placements that bind instances to NUMA nodes.
_BY_NODE = ("spreadnuma", "roundrobin")


def notes(
    options: LaunchOptions, topology: NumaTopology | None, *, mpi: str, strategy: str, hosts: int, per_host: int
) -> Iterator[str]:
    """Return the notes on a job with ``per_host`` instances on each of ``hosts``, placed by ``strategy``.

    ``mpi`` is what starts it: mpich, openmpi or slurm.
    ``topology`` is that of this host, if it is known and takes part.
    """
    for field, why in _WITHOUT_EFFECT:
        if getattr(options, field):
            yield f"--{field.replace('_', '-')} has no effect: {why}"
    if not options.allow_run_as_root and mpi != "openmpi":
        yield f"--allow-run-as-root no has no effect: {mpi} runs for every user"
    width = options.ipus // options.num_instances
    if width != partition_size(width) and not options.offline_mode:
        yield (
            f"{options.num_replicas // options.num_instances} replicas of {_ipus(options.ipus_per_replica)} need "
            f"{_ipus(width)} in each instance, but a device has a power of two: each gets a device of "
            f"{partition_size(width)}, of which {partition_size(width) - width} idle"
        )
    if options.ilds > hosts:
        yield (
            f"{options.ilds} IPU-Link domains over {hosts} host{'s' * (hosts > 1)}: each is a Pod of its own, which "
            f"needs at least one host; it runs emulated, but real Pods need --host with {options.ilds} hosts"
        )
    nodes = len(topology.nodes) if topology and strategy in _BY_NODE else per_host
    if 1 < nodes < per_host:
        yield (
            f"{per_host} instances on a host of {nodes} NUMA nodes: some share a node and its memory bandwidth; use "
            f"--num-instances {nodes * hosts}, or --process-placement spreadcore"
        )


def _ipus(count: int) -> str:
    return f"{count} IPU{'s' * (count > 1)}"
