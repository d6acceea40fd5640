"""Open MPI: the mpirun command of Open MPI's PRRTE (5) or ORTE (4), which pass OMPI_COMM_WORLD_RANK to processes."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

from poprun_py.backends.start_command import StartCommand, StartRequest
from poprun_py.wire.variables import FOLDER_VARIABLE, SUPERVISOR_VARIABLES

#: Open MPI refuses to run as root, as containers do, without both variables of its version.
_AS_ROOT = dict.fromkeys(
    (
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "PRTE_ALLOW_RUN_AS_ROOT",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
    ),
    "1",
)

#: Without libfabric, whose detection takes a second at every start.
QUICK_START = {"OMPI_MCA_btl": "^ofi", "OMPI_MCA_mtl": "^ofi"}

#: Ranks that share a core must not busy-wait.
_SHARED_CORES = {"OMPI_MCA_mpi_yield_when_idle": "1"}


#: The session folder of the daemon on this host: of Open MPI 5 and 4.
_SESSION = ("PRTE_MCA_prte_local_tmpdir_base", "OMPI_MCA_orte_local_tmpdir_base")

#: The program that Open MPI runs to reach other hosts.
_AGENT = ("PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent")

#: Starts the guard of each daemon too, by a command line of the remote shell: only if all its words are plain ones.
_SSH, _PLAIN = Path(__file__).with_name("prte_ssh.sh"), re.compile(r"[\w./+@%=-]+", re.ASCII)

#: Environments in which Open MPI prefers another command to ssh.
_GRID_ENGINE = "SGE_ROOT"

#: The folder of the shared memory of Open MPI 5: between processes, and for windows.
SHARED_MEMORY = tuple(f"OMPI_MCA_{name}_backing_directory" for name in ("btl_sm", "osc_sm", "osc_rdma"))

#: Processes of one host need no TCP, whose sockets would listen at all addresses.
_ONE_HOST = {"OMPI_MCA_btl": "^ofi,tcp"}


def command(request: StartRequest) -> StartCommand:
    """Return the one ``mpirun`` for all supervisors; variables that the user has set take precedence."""
    defaults = {"HOME": _home()} | (_AS_ROOT if request.as_root else {}) | QUICK_START
    defaults |= _SHARED_CORES if request.oversubscribed else {}
    defaults |= _network(request) if request.cluster.hosts else _ONE_HOST
    environment = {name: value for name, value in defaults.items() if name not in request.environ}
    oversubscribe = ("--oversubscribe",) if request.oversubscribed else ()
    places = _on_hosts(request, environment) if request.cluster.hosts else oversubscribe
    count = ("-n", str(request.num_instances))
    guards = (FOLDER_VARIABLE,) if request.cluster.hosts else ()
    return StartCommand(
        argv=(
            *(request.installation.launcher, "--bind-to", "none", *places, *request.extra),
            *(*count, *request.local, *request.supervisor),
        ),
        environment=environment,
        rank_variable="OMPI_COMM_WORLD_RANK",
        folder_variables=(*(name for name in _SESSION if name not in request.environ), *guards),
        unset=guards,
        shared_variables=tuple(name for name in SHARED_MEMORY if name not in request.environ),
    )


def _home() -> str:
    """A value for HOME, without which Open MPI does not start."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container may run with a user id without an entry
        return "/"


def _on_hosts(request: StartRequest, environment: dict[str, str]) -> tuple[str, ...]:
    """Blocks of instances over ssh, with as many slots on each host as instances."""
    hosts = ",".join(f"{host}:{request.per_host}" for host in request.cluster.hosts)
    names = [*SUPERVISOR_VARIABLES, *environment]
    passed = [word for name in names if not name.startswith(("HOME", "OMPI_", "PRTE_")) for word in ("-x", name)]
    return ("--host", hosts, "--map-by", "slot", "--wdir", "/", *passed)


def _network(request: StartRequest) -> dict[str, str]:
    """Variables for the ssh to use, and for the subnet of the daemons and the processes."""
    network, agent = request.cluster.network, _agent(request)
    daemons = dict.fromkeys(("PRTE_MCA_oob_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"), network)
    interfaces = daemons | {"OMPI_MCA_btl_tcp_if_include": network} if network else {}
    return interfaces | (dict.fromkeys(_AGENT, agent) if agent else {})


def _agent(request: StartRequest) -> str:
    """The command for Open MPI to use as ssh, which also starts guards if possible; empty: Open MPI's own choice."""
    words = (str(_SSH), request.supervisor[0], request.ssh or "ssh")
    if (request.ssh or _GRID_ENGINE not in request.environ) and all(map(_PLAIN.fullmatch, words)):
        return " ".join(words) if os.access(_SSH, os.X_OK) else request.ssh
    return request.ssh
