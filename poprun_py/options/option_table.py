"""Options: the table of everything the command line understands, and the frozen result of reading one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from popdist_py.layout import Layout
from poprun_py.options import values

__all__ = ["ILD_SIZE", "OPTIONS", "LaunchOptions", "Option"]

#: IPUs that IPU-Links can join; a Pod64 is the largest domain.
ILD_SIZE = 64


@dataclass(frozen=True)
class Option:
    """One row: ``--name``, how its value is read, where it goes and what --help says of it."""

    name: str
    group: str
    help: str
    read: Callable[[str], object] | None = None  # None: a flag, which takes a word only after "="
    metavar: str = ""
    letter: str = ""  # one-letter spelling
    aliases: tuple[str, ...] = ()  # other spellings of the name
    field: str = ""  # of LaunchOptions; the name with underscores unless given
    adds: int = 0  # a flag that counts: how much one use adds
    extends: bool = False  # may be repeated: the words of all uses are joined
    appends: bool = False  # may be repeated: each use is one more entry

    @property
    def target(self) -> str:
        return self.field or self.name.replace("-", "_")

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that are understood, where they can be counted."""
        names = tuple(self.metavar.split("|"))
        return names if len(names) > 1 and self.metavar.islower() else ()

    @property
    def repeats(self) -> bool:
        return self.extends or self.appends

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


_YES_NO = (values.boolean, "yes|no")

OPTIONS: tuple[Option, ...] = (
    Option("num-instances", "Shape", "Number of instances (processes). Default 1.", values.count, "N"),
    Option(
        "num-replicas", "Shape", "Total number of replicas, divided evenly among the instances. "
        "Default: one per instance.", values.count, "N",
    ),
    Option("ipus-per-replica", "Shape", "IPUs that one replica uses. Default 1.", values.count, "N"),
    Option(
        "num-ilds", "Shape", "Number of IPU-Link domains that the replicas are divided among. Default: as few as "
        "hold the IPUs (64 each).", values.count, "N",
    ),
    Option(
        "print-topology", "Shape", "Print hosts, IPU-Link domains, instances and replicas as a table; with -v also "
        "where each instance runs.", *_YES_NO,
    ),
    Option(
        "host", "Hosts", "Hosts to run on, divided among the instances evenly: a list such as h0,h1 or n[0-2,4]. "
        "Default: this host.", values.text, "LIST", letter="H",
    ),
    Option(
        "hostfile", "Hosts", "File with one host per line, instead of --host.", values.text, "FILE",
        aliases=("host-file", "hosts-file"), field="host_file",
    ),
    Option(
        "host-subnet", "Hosts", "Network interface (its name) or subnet for the traffic between hosts. Default: "
        "the one that leads to them.", values.text, "NAME",
    ),
    Option(
        "synchronise-python-venv", "Hosts", "Accepted for PopRun's sake, without effect: every host needs the "
        "virtual environment in the same place.", *_YES_NO,
    ),
    Option(
        "synchronise-poplar-sdk", "Hosts", "Accepted for PopRun's sake, without effect: there is no SDK to copy.",
        *_YES_NO,
    ),
    Option(
        "distribute-ssh-key", "Hosts", "Accepted for PopRun's sake, without effect: keys are yours to distribute.",
        *_YES_NO,
    ),
    Option(
        "process-placement", "Placement", "How instances are bound to the CPUs and the memory of a host: spreadnuma "
        "divides its NUMA nodes among them, spreadcore its cores, disabled binds nothing. Default spreadnuma.",
        values.choice("spreadnuma", "spreadcore", "disabled"), "spreadnuma|spreadcore|disabled",
    ),
    Option(
        "numa-aware", "Placement", "The older way: yes binds each instance to one NUMA node, in turn; no binds "
        "nothing.", *_YES_NO,
    ),
    Option(
        "mpi", "MPI",
        "The MPI to use: mpich, openmpi, or the path of an mpirun or of its installation. Default: "
        "$POPRUN_PY_MPI, else what $MPI4PY_LIBMPI belongs to, else mpirun on PATH, else the MPI from the "
        "package index beside this Python.", values.text, "NAME|PATH",
    ),
    Option(
        "backend", "MPI", "What starts the instances: mpi (mpirun), slurm (srun, the default for several hosts of an "
        "allocation of Slurm), or inprocess, which runs a single instance in this process under pdb. Default auto.",
        values.choice("auto", "mpi", "slurm", "inprocess"), "auto|mpi|slurm|inprocess",
    ),
    Option(
        "mpi-global-args", "MPI", "Options for mpirun as a whole, as one string. May be repeated.",
        values.shell_words, "ARGS", extends=True,
    ),
    Option(
        "mpi-local-args", "MPI", "Options for every instance, as one string, such as '-x NAME -x NAME=VALUE'. May be "
        "repeated.", values.shell_words, "ARGS", extends=True,
    ),
    Option(
        "instance-mpi-local-args", "MPI", "The same for one instance: its index, a colon and the options, such as "
        "'0:-x NAME=VALUE'. May be repeated.", values.local_words, "N:ARGS", appends=True,
    ),
    Option(
        "allow-run-as-root", "MPI", "Let mpirun run as root. Default yes, since containers run as root.", *_YES_NO,
    ),
    Option(
        "only-output-from-instance", "Output", "Show the output of this instance only; when another one fails, its "
        "last lines are shown all the same.", values.index, "N",
    ),
    Option(
        "log-dir", "Output", "Also write what each instance writes to files in this folder, one per instance and "
        "stream.", values.text, "DIR",
    ),
    Option(
        "progress", "Output", "Live view with a row per instance. Default auto: on a terminal.",
        values.choice("auto", "on", "off"), "auto|on|off",
    ),
    Option(
        "verbose", "Output", "Log what the launcher does; twice (-vv): log more, and print the topology.", letter="v",
        adds=1, field="verbosity",
    ),
    Option("vv", "Output", "The same as -vv.", adds=2, field="verbosity"),
    Option(
        "executable-cache-path", "Execution", "Folder for compiled executables, which the instances share: one "
        "compiles, the others load. Default: a folder of the job's own.", values.text, "DIR",
    ),
    Option("offline-mode", "Execution", "Run the program without attaching to any IPU.", *_YES_NO),
    Option("sync-type", "Execution", "Poplar sync type, such as ST_POD_NATIVE_DEFAULT.", values.text, "NAME"),
    Option("grace", "Execution", "Seconds to end by itself after Ctrl-C. Default 10.", values.seconds, "S"),
    Option("timeout", "Execution", "End the job after this many seconds.", values.seconds, "S"),
    Option(
        "max-restarts", "Execution", "Start a job that failed again, up to so many times. Default 0.",
        values.index, "N",
    ),
    Option(
        "vipu-partition", "V-IPU", "Partition to use, or to create. Default: $IPUOF_VIPU_API_PARTITION_ID, else the "
        "only one there is.", values.text, "NAME",
    ),
    Option(
        "vipu-allocation", "V-IPU", "Allocation that partitions are created in.", values.text, "NAME",
        aliases=("vipu-cluster",),
    ),
    Option(
        "update-partition", "V-IPU", "Create the partition, or create it anew where it does not fit the job. "
        "Default no.", *_YES_NO,
    ),
    Option(
        "reset-partition", "V-IPU", "Reset the partition before the job. Default: if it is not reconfigurable.",
        *_YES_NO,
    ),
    Option(
        "remove-partition", "V-IPU", "Remove a partition that was created for the job at its end. Default yes.",
        *_YES_NO,
    ),
    Option(
        "vipu-partition-attempts", "V-IPU", "How often to look at a partition that is not active yet. Default 1.",
        values.count, "N",
    ),
    Option(
        "vipu-server-host", "V-IPU", "Host of the V-IPU server. Default: $IPUOF_VIPU_API_HOST, else localhost.",
        values.text, "HOST",
    ),
    Option(
        "vipu-server-port", "V-IPU", "Its port. Default: $IPUOF_VIPU_API_PORT, else 8090.", values.port, "PORT",
    ),
    Option(
        "vipu-server-timeout", "V-IPU", "Seconds to wait for it. Default: $IPUOF_VIPU_API_TIMEOUT, else 120.",
        values.seconds, "S",
    ),
    Option(
        "import-config", "General", "Read options from a file; the command line overrides them.", values.text, "FILE",
    ),
    Option(
        "export-config", "General", "Write the options to a file that --import-config reads.", values.text, "FILE",
    ),
    Option("overwrite-config", "General", "Let --export-config overwrite a file. Default no.", *_YES_NO),
    Option("dry-run", "General", "Print what would be started, and start nothing."),
    Option(
        "format", "General", "How --dry-run prints: text or json. Default text.", values.choice("text", "json"),
        "text|json",
    ),
    Option("version", "General", "Print the version."),
    Option(
        "version-format", "General", "What --version prints: text, full-text or full-json, which add everything that "
        "poprun-py builds upon.", values.choice("text", "full-text", "full-json"), "text|full-text|full-json",
    ),
    Option(
        "completion", "General", "Print the completion script of a shell: bash, zsh or fish.",
        values.choice("bash", "zsh", "fish"), "bash|zsh|fish",
    ),
    Option("help", "General", "Print this text.", letter="h"),
)  # fmt: skip


@dataclass(frozen=True)
class LaunchOptions:
    """One command line, read and checked; ``program`` is everything after the options.

    ``given`` are the fields that were set explicitly, by the command line or a file; None stands for "not given"
    where the default depends on something else than this class.
    """

    program: tuple[str, ...] = ()
    assignments: tuple[tuple[str, str], ...] = ()  # NAME=VALUE before the program
    given: frozenset[str] = frozenset()

    num_instances: int = 1
    num_replicas: int = 1
    ipus_per_replica: int = 1
    num_ilds: int | None = None
    print_topology: bool = False

    host: str | None = None
    host_file: str | None = None
    host_subnet: str | None = None
    synchronise_python_venv: bool = False
    synchronise_poplar_sdk: bool = False
    distribute_ssh_key: bool = False

    process_placement: str = "spreadnuma"
    numa_aware: bool | None = None

    mpi: str | None = None
    backend: str = "auto"
    mpi_global_args: tuple[str, ...] = ()  # words, split
    mpi_local_args: tuple[str, ...] = ()
    instance_mpi_local_args: tuple[tuple[int, tuple[str, ...]], ...] = ()  # (instance, words)
    allow_run_as_root: bool = True

    only_output_from_instance: int | None = None
    log_dir: str | None = None
    progress: str = "auto"
    verbosity: int = 0

    executable_cache_path: str | None = None
    offline_mode: bool = False
    sync_type: str | None = None
    grace: float = 10.0
    timeout: float | None = None
    max_restarts: int = 0

    vipu_partition: str | None = None
    vipu_allocation: str | None = None
    update_partition: bool = False
    reset_partition: bool | None = None
    remove_partition: bool = True
    vipu_partition_attempts: int = 1
    vipu_server_host: str | None = None
    vipu_server_port: int | None = None
    vipu_server_timeout: float | None = None

    import_config: str | None = None
    export_config: str | None = None
    overwrite_config: bool = False
    dry_run: bool = False
    format: str = "text"
    version: bool = False
    version_format: str = "text"
    completion: str | None = None
    help: bool = False

    @property
    def asks(self) -> bool:
        """Is a question all that there is, and no program to be started?"""
        return self.help or self.version or "version_format" in self.given or self.completion is not None

    @property
    def ipus(self) -> int:
        """IPUs of the whole job."""
        return self.num_replicas * self.ipus_per_replica

    @property
    def ilds(self) -> int:
        """IPU-Link domains: as asked, else the fewest that share the replicas evenly and hold their IPUs."""
        if self.num_ilds is not None:
            return self.num_ilds
        needed = -(-self.ipus // ILD_SIZE)
        return next((n for n in range(needed, self.num_replicas) if self.num_replicas % n == 0), self.num_replicas)

    @property
    def layout(self) -> Layout:
        return Layout.uniform(num_replicas=self.num_replicas, num_instances=self.num_instances)
