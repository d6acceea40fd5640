"""Foreign options: the options of other launchers (mpirun, torchrun), and what to write instead.

The advice of the parser and docs/guides/from-mpirun-and-torchrun.md are made from this table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ForeignOption:
    """One row: the option ``theirs`` of ``launcher``, the equivalent ``ours`` of poprun-py (may be empty), a note."""

    launcher: str
    theirs: str
    ours: str
    note: str = ""
    hidden: tuple[str, ...] = ()  # further spellings

    @property
    def spellings(self) -> tuple[str, ...]:
        """``-np N`` -> ``-np``; ``--nnodes=N`` -> ``--nnodes``."""
        return (*(word.split()[0].partition("=")[0] for word in self.theirs.split(", ")), *self.hidden)


FOREIGN: tuple[ForeignOption, ...] = (
    ForeignOption("mpirun", "-np 4, -n 4", "--num-instances 4", "also -n of srun", ("-c", "--np", "--n", "--ntasks")),
    ForeignOption(
        "mpirun", "-host h0,h1, -hosts h0,h1", "--host h0,h1", "also n[0-2,4]; the instances are divided evenly",
        ("--hosts",),
    ),
    ForeignOption("mpirun", "-hostfile FILE, -machinefile FILE, -f FILE", "--hostfile hosts", "", ("--machinefile",)),
    ForeignOption(
        "mpirun", "-x NAME=VALUE", "--mpi-local-args='-x NAME=VALUE'", "the whole environment is always passed on; "
        "NAME=VALUE before the program does the same", ("-genv", "-env", "--export"),
    ),
    ForeignOption("mpirun", "--tag-output", "", "every line is always tagged", ("-prepend-rank", "--prepend-rank")),
    ForeignOption("mpirun", "-l", "", "every line is always tagged"),
    ForeignOption(
        "mpirun", "--output-filename DIR, -outfile-pattern FILE", "--log-dir logs",
        "stdout and stderr in separate files", ("-errfile-pattern",),
    ),
    ForeignOption(
        "mpirun", "--bind-to numa, --map-by numa", "--process-placement spreadnuma",
        "the default; for cores: spreadcore", ("-bind-to", "-map-by", "--bind-to-numa", "--cpu-bind"),
    ),
    ForeignOption("mpirun", "--bind-to core", "--process-placement spreadcore"),
    ForeignOption("mpirun", "--bind-to none", "--process-placement disabled"),
    ForeignOption(
        "mpirun", "--report-bindings, --display-map", "--print-topology=yes -v", "-v adds the CPUs to the table",
        ("--display-allocation", "--do-not-launch"),
    ),
    ForeignOption(
        "mpirun", "--mca NAME VALUE", "--mpi-global-args='--mca NAME VALUE'", "", ("-mca", "--prtemca", "--pmixmca"),
    ),
    ForeignOption("mpirun", "--oversubscribe", "", "more instances than CPUs are always allowed"),
    ForeignOption(
        "mpirun", "-wdir DIR, --wdir DIR", "", "instances run in the current folder of the launcher",
        ("-wd", "--chdir"),
    ),
    ForeignOption("mpirun", "--timeout 60", "--timeout 60", "the exit code is 124, as with timeout(1)"),
    ForeignOption(
        "torchrun", "--nproc-per-node 4", "--num-instances 4", "the total number, over all hosts",
        ("--nproc_per_node", "--nproc", "--ntasks-per-node", "--ranks-per-node"),
    ),
    ForeignOption(
        "torchrun", "--nnodes 2", "--host h0,h1", "one command starts all hosts, by name",
        ("--nodes", "-N", "--num-hosts", "--num_machines"),
    ),
    ForeignOption(
        "torchrun", "--node-rank 0, --rdzv-endpoint HOST", "", "not needed: the launcher starts the instances on all "
        "hosts",
        ("--node_rank", "--rdzv_endpoint", "--rdzv-backend", "--rdzv_backend", "--rdzv-id", "--rdzv_id",
         "--master-addr", "--master_addr", "--master-port", "--master_port", "--standalone"),
    ),
    ForeignOption(
        "torchrun", "--max-restarts 3", "--max-restarts 3", "the whole job starts again", ("--max_restarts",),
    ),
    ForeignOption("torchrun", "--log-dir DIR", "--log-dir logs", "", ("--log_dir", "--output", "--error")),
    ForeignOption(
        "torchrun", "--redirects 3, --tee 3", "--log-dir logs", "everything is also written to the terminal",
        ("-r", "-t"),
    ),
    ForeignOption(
        "torchrun", "--local-ranks-filter 0", "--only-output-from-instance 0", "", ("--local_ranks_filter",),
    ),
    ForeignOption(
        "torchrun", "--numa-binding node", "--process-placement spreadnuma", "the default", ("--numa_binding",),
    ),
    ForeignOption(
        "torchrun", "--no-python, --module", "", "name the program: python -m MODULE", ("-m", "--no_python"),
    ),
    ForeignOption(
        "torchrun", "--monitor-interval", "", "not needed: the end of an instance is seen at once",
        ("--monitor_interval",),
    ),
)  # fmt: skip


def find_foreign(word: str) -> ForeignOption | None:
    """Return the first row of which ``word`` (without a value) is a spelling; None if there is none."""
    return next((row for row in FOREIGN if word in row.spellings), None)
