"""mpirun: the one process that the launcher starts itself, and the watchdog that ends it if the launcher dies."""

from __future__ import annotations

import errno
import os
import select
import signal

import msgpack

import poprun_py
from poprun_py.errors import PoprunError
from poprun_py.linux import processes
from poprun_py.linux.job_record import JobRecord
from poprun_py.linux.pipes import OutputPipe
from poprun_py.plan.launch_plan import LaunchPlan
from poprun_py.wire.variables import ADDRESS_VARIABLE, KEY_VARIABLE, PATH_VARIABLE, RANK_VARIABLE

#: Prefixes of the variables of a surrounding process manager, which would confuse the one that is started here.
_OUTER_MPI_PREFIXES = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "PRTE_LAUNCHED", "HYDI_")

#: Seconds that mpirun may take to end by itself once the launcher is gone (the kernel sends it SIGTERM then).
_WATCHDOG_GRACE = 1.0

_MOST_DESCRIPTORS = 4096


def start_mpirun(
    plan: LaunchPlan, *, address: str, key: bytes, record: JobRecord | None = None
) -> tuple[int, list[OutputPipe]]:
    """Start the plan's command; return its pid and the pipes of its own output (instances write to the channel).

    It makes its files in the folder of ``record``. The address and the key of the channel are passed in its
    environment, never on a command line.
    """
    argv = plan.command.argv
    null = os.open(os.devnull, os.O_RDONLY)
    pipes = [os.pipe(), os.pipe()]
    try:
        pid = processes.spawn(
            argv,
            executable=argv[0],
            environment=_environment(plan, address, key, record),
            cwd=plan.cwd,
            streams=(null, pipes[0][1], pipes[1][1]),
            session=True,
            death_signal=signal.SIGTERM,
        )
    except OSError as error:
        cure = "" if error.errno == errno.EAGAIN else "; name another with --mpi"
        raise PoprunError(f"{argv[0]} cannot be started: {error.strerror}{cure}") from None
    for descriptor in (null, pipes[0][1], pipes[1][1]):
        os.close(descriptor)
    if plan.remote_hosts:
        start_watchdog(pid)
    return pid, [OutputPipe(number, pipe[0]) for number, pipe in enumerate(pipes, start=1)]


def channel_addresses(plan: LaunchPlan) -> tuple[str, ...]:
    """Return the addresses to listen at: of the interfaces that lead to the other hosts, or of the loopback only."""
    if not plan.remote_hosts:
        return ("127.0.0.1",)
    from poprun_py.site.network import addresses_towards, interface_in, interfaces  # not needed on one host

    chosen = interface_in(plan.network, interfaces()) if plan.network else None
    return (chosen.address,) if chosen else addresses_towards(plan.remote_hosts)


def open_standard_streams() -> None:
    """Open /dev/null as descriptors 0, 1 and 2 where they are closed, so that no other file gets those numbers."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            return


def start_watchdog(mpirun: int) -> int:
    """Fork a process that ends ``mpirun`` if it outlives the launcher; return its pid. Not after starting threads.

    An mpirun that waits for other hosts may ignore the SIGTERM that the kernel sends when the launcher dies.
    """
    launcher = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()  # Ctrl-C is for the launcher
        signal.set_wakeup_fd(-1)
        os.closerange(0, _MOST_DESCRIPTORS)
        _watch(launcher, mpirun)
    finally:
        os._exit(0)


def _watch(launcher: int, mpirun: int) -> None:
    poll = select.poll()
    launcher_end, mpirun_end = os.pidfd_open(launcher), os.pidfd_open(mpirun)
    for descriptor in (launcher_end, mpirun_end):
        poll.register(descriptor, select.POLLIN)
    if any(descriptor == mpirun_end for descriptor, _ in poll.poll()):
        return
    poll.unregister(launcher_end)
    if not poll.poll(_WATCHDOG_GRACE * 1000):
        for pid in [mpirun, *processes.descendants(mpirun)]:
            processes.kill(pid, signal.SIGKILL)


def _environment(plan: LaunchPlan, address: str, key: bytes, record: JobRecord | None) -> dict[str, str]:
    """The user's environment, and what the command and the supervisors need, with the job's own folder for files."""
    names = plan.command.folder_variables
    packages = (os.path.abspath(str(package.__file__)) for package in (poprun_py, msgpack))  # that supervisors import
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OUTER_MPI_PREFIXES)}
    return {
        **inherited,
        **plan.command.environment,
        ADDRESS_VARIABLE: address,
        KEY_VARIABLE: key.hex(),
        RANK_VARIABLE: plan.command.rank_variable,
        PATH_VARIABLE: os.pathsep.join(os.path.dirname(os.path.dirname(path)) for path in packages),
        **(dict.fromkeys(names, record.make_folder()) if names and record else {}),
    }
