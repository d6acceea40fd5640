"""Option table: all options of the command line, and the frozen dataclass that holds their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from popdist_py.layout import Layout
from poprun_py.options import values

#: IPUs of the largest IPU-Link domain, a Pod64.
ILD_SIZE = 64

#: Names the partition of a job that --vipu-partition does not name.
PARTITION_VARIABLE = "IPUOF_VIPU_API_PARTITION_ID"


@dataclass(frozen=True)
class Option:
    """One row of the table: ``--name``, how its value is read, the field that it sets, and its help text."""

    name: str
    group: str
    help: str
    read: Callable[[str], object] | None = None  # None: a flag, whose value can only follow "="
    metavar: str = ""
    letter: str = ""  # short form
    aliases: tuple[str, ...] = ()  # other spellings of the name
    field: str = ""  # of LaunchOptions; the name with underscores unless given
    adds: int = 0  # a flag that counts: how much one use adds
    extends: bool = False  # may be repeated: the words of all uses are concatenated
    appends: bool = False  # may be repeated: each use adds an entry

    @property
    def target(self) -> str:
        return self.field or self.name.replace("-", "_")

    @property
    def choices(self) -> tuple[str, ...]:
        """The possible values, if there is a fixed set of them."""
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
        "num-replicas", "Shape", "Total number of replicas, divided evenly among the instances. Default: one per "
        "instance.", values.count, "N",
    ),
    Option("ipus-per-replica", "Shape", "Number of IPUs of one replica. Default 1.", values.count, "N"),
    Option(
        "num-ilds", "Shape", "Number of IPU-Link domains that the replicas are divided among. Default: the fewest "
        "that hold all IPUs (64 each).", values.count, "N",
    ),
    Option(
        "print-topology", "Shape", "Print a table of hosts, IPU-Link domains, instances and replicas; with -v also "
        "the CPUs and memory nodes of each instance.", *_YES_NO,
    ),
    Option(
        "host", "Hosts", "Hosts to run on, among which the instances are divided evenly: a list such as h0,h1 or "
        "n[0-2,4]. Default: this host.", values.text, "LIST", letter="H",
    ),
    Option(
        "hostfile", "Hosts", "File with one host per line; replaces --host.", values.text, "FILE",
        aliases=("host-file", "hosts-file"), field="host_file",
    ),
    Option(
        "host-subnet", "Hosts", "Name of a network interface, or subnet, for the traffic between hosts. Default: the "
        "one with the route to them.", values.text, "NAME",
    ),
    Option(
        "synchronise-python-venv", "Hosts", "Accepted for PopRun's users, and said to have no effect: every host "
        "needs the virtual environment at the same path.", *_YES_NO,
    ),
    Option(
        "synchronise-poplar-sdk", "Hosts", "Accepted for PopRun's users, and said to have no effect: there is no SDK "
        "to copy.", *_YES_NO,
    ),
    Option(
        "distribute-ssh-key", "Hosts", "Accepted for PopRun's users, and said to have no effect: distribute the keys "
        "yourself.", *_YES_NO,
    ),
    Option(
        "process-placement", "Placement", "How instances are bound to the CPUs and memory of their host: spreadnuma "
        "divides its NUMA nodes among them, spreadcore its cores, disabled does not bind. Default spreadnuma.",
        values.choice("spreadnuma", "spreadcore", "disabled"), "spreadnuma|spreadcore|disabled",
    ),
    Option(
        "numa-aware", "Placement", "Older form of --process-placement: yes binds the instances to NUMA nodes "
        "round-robin, no does not bind.", *_YES_NO,
    ),
    Option(
        "mpi", "MPI", "The MPI to use: mpich, openmpi, or the path of an mpirun or of an installation. Default: "
        "$POPRUN_PY_MPI, else the installation of $MPI4PY_LIBMPI, else mpirun on PATH, else the MPI package in the "
        "environment of this Python.", values.text, "NAME|PATH",
    ),
    Option(
        "backend", "MPI", "What starts the instances: mpi (mpirun), slurm (srun), or inprocess, which runs a single "
        "instance in this process and on this terminal, as a debugger needs it: --backend inprocess python -m pdb "
        "train.py. Default auto: slurm for several hosts of a Slurm allocation, else mpi.",
        values.choice("auto", "mpi", "slurm", "inprocess"), "auto|mpi|slurm|inprocess",
    ),
    Option(
        "mpi-global-args", "MPI", "Global options of mpirun, as one string. May be repeated.", values.shell_words,
        "ARGS", extends=True,
    ),
    Option(
        "mpi-local-args", "MPI", "Options of mpirun for every instance, as one string, such as '-x NAME -x "
        "NAME=VALUE'. May be repeated.", values.shell_words, "ARGS", extends=True,
    ),
    Option(
        "instance-mpi-local-args", "MPI", "The same for one instance: its index, a colon and the options, such as "
        "'0:-x NAME=VALUE'. May be repeated.", values.local_words, "N:ARGS", appends=True,
    ),
    Option(
        "allow-run-as-root", "MPI", "Allow mpirun to run as root. Default yes, because containers often do.",
        *_YES_NO,
    ),
    Option(
        "only-output-from-instance", "Output", "Show only the output of this instance. If another one fails, its "
        "last lines are shown nevertheless.", values.index, "N",
    ),
    Option(
        "log-dir", "Output", "Folder in which the output of each instance is also written to files, one per stream; "
        "a later job starts the files anew.", values.text, "DIR",
    ),
    Option(
        "trace", "Output", "Folder in which the launcher and every instance record what they do and when; ipu-emu "
        "report DIR shows it.", values.text, "DIR",
    ),
    Option(
        "progress", "Output", "Live view with a row per instance. Default auto: on if stderr is a terminal.",
        values.choice("auto", "on", "off"), "auto|on|off",
    ),
    Option(
        "verbose", "Output", "Log what the launcher does, and let programs print the digest of "
        "trained weights; twice (-vv): log more, and print the topology.", letter="v",
        adds=1, field="verbosity",
    ),
    Option("vv", "Output", "The same as -vv.", adds=2, field="verbosity"),
    Option(
        "executable-cache-path", "Execution", "Folder for compiled executables, shared by the instances: one "
        "compiles, the others load. Default: a temporary folder of the job.", values.text, "DIR",
    ),
    Option("offline-mode", "Execution", "Run the program without attaching to IPUs: it can only compile.", *_YES_NO),
    Option("sync-type", "Execution", "Poplar sync type, such as ST_POD_NATIVE_DEFAULT.", values.text, "NAME"),
    Option(
        "grace", "Execution", "Seconds that the program has to end after Ctrl-C. Default 10.", values.seconds, "S",
    ),
    Option("timeout", "Execution", "Seconds after which the job is ended. Default: no limit.", values.seconds, "S"),
    Option(
        "max-restarts", "Execution", "How many times a failed job is started again. Default 0.", values.index, "N",
    ),
    Option(
        "vipu-partition", "V-IPU", "Partition to use, or to create. Default: $IPUOF_VIPU_API_PARTITION_ID, else the "
        "only existing one.", values.text, "NAME",
    ),
    Option(
        "vipu-allocation", "V-IPU", "Allocation in which partitions are created.", values.text, "NAME",
        aliases=("vipu-cluster",),
    ),
    Option(
        "update-partition", "V-IPU", "Create the partition, or recreate it if it is too small for the job. Default "
        "no.", *_YES_NO,
    ),
    Option(
        "reset-partition", "V-IPU", "Reset the partition before the job. Default no, because emulated partitions are "
        "reconfigurable.",
        *_YES_NO,
    ),
    Option(
        "remove-partition", "V-IPU", "Remove a partition that was created for the job when the job ends. Default "
        "yes.", *_YES_NO,
    ),
    Option(
        "vipu-partition-attempts", "V-IPU", "How many times to try to get a partition that another job uses, one "
        "second apart. Default 1.", values.count, "N",
    ),
    Option(
        "vipu-server-host", "V-IPU", "Host of the V-IPU server. Default: $IPUOF_VIPU_API_HOST, else localhost.",
        values.text, "HOST",
    ),
    Option(
        "vipu-server-port", "V-IPU", "Port of the V-IPU server. Default: $IPUOF_VIPU_API_PORT, else 8090.",
        values.port, "PORT",
    ),
    Option(
        "vipu-server-timeout", "V-IPU", "Seconds to wait for the V-IPU server. Default: $IPUOF_VIPU_API_TIMEOUT, "
        "else 120.", values.seconds, "S",
    ),
    Option(
        "import-config", "General", "Read options from a file; options of the command line take precedence.",
        values.text, "FILE",
    ),
    Option(
        "export-config", "General", "Write the options to a file that --import-config reads.", values.text, "FILE",
    ),
    Option("overwrite-config", "General", "Allow --export-config to overwrite a file. Default no.", *_YES_NO),
    Option("dry-run", "General", "Print what would be started, without starting it."),
    Option(
        "format", "General", "Output format of --dry-run: text or json. Default text.", values.choice("text", "json"),
        "text|json",
    ),
    Option("version", "General", "Print the version."),
    Option(
        "version-format", "General", "Output format of --version: text, or full-text or full-json with the versions "
        "of all dependencies.", values.choice("text", "full-text", "full-json"), "text|full-text|full-json",
    ),
    Option(
        "completion", "General", "Print the completion script for a shell: bash, zsh or fish.",
        values.choice("bash", "zsh", "fish"), "bash|zsh|fish",
    ),
    Option("help", "General", "Print this help.", letter="h"),
)  # fmt: skip


@dataclass(frozen=True)
class LaunchOptions:
    """The options of one command line, validated; ``program`` is everything after the options.

    ``explicit``: the fields that the command line or a file set. None: not given, where the default depends on more
    than the options.
    """

    program: tuple[str, ...] = ()
    assignments: tuple[tuple[str, str], ...] = ()  # NAME=VALUE before the program
    explicit: frozenset[str] = frozenset()

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
    mpi_global_args: tuple[str, ...] = ()  # split into words
    mpi_local_args: tuple[str, ...] = ()
    instance_mpi_local_args: tuple[tuple[int, tuple[str, ...]], ...] = ()  # (instance, words)
    allow_run_as_root: bool = True

    only_output_from_instance: int | None = None
    log_dir: str | None = None
    trace: str | None = None
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
        """Whether the command line only requests information, so that no program is started."""
        return self.help or self.version or "version_format" in self.explicit or self.completion is not None

    def requests_partition(self, environ: Mapping[str, str]) -> bool:
        """Whether an option for the V-IPU is given, or the environment names a partition."""
        requesting = {option.target for option in OPTIONS if option.group == "V-IPU"}
        return bool(self.explicit & requesting or environ.get(PARTITION_VARIABLE))

    @property
    def ipus(self) -> int:
        """IPUs of the whole job."""
        return self.num_replicas * self.ipus_per_replica

    @property
    def ilds(self) -> int:
        """Number of IPU-Link domains: as given, else the fewest that share the replicas evenly and hold all IPUs."""
        if self.num_ilds is not None:
            return self.num_ilds
        needed = -(-self.ipus // ILD_SIZE)
        return next((n for n in range(needed, self.num_replicas) if self.num_replicas % n == 0), self.num_replicas)

    @cached_property
    def layout(self) -> Layout:
        return Layout.uniform(num_replicas=self.num_replicas, num_instances=self.num_instances)
