"""Start: the one process that the launcher starts itself, mpirun, with what its supervisors need to report back."""

from __future__ import annotations

import os
import signal

import msgpack

import poprun_py
from poprun_py.errors import PoprunError
from poprun_py.host.supervisor import RANK_VARIABLE
from poprun_py.host.supervisor_main import PATH_VARIABLE
from poprun_py.job.watchdog import watch_over
from poprun_py.linux import processes
from poprun_py.linux.pipes import OutputPipe
from poprun_py.plan.launch_plan import LaunchPlan
from poprun_py.wire.channel import ADDRESS_VARIABLE, KEY_VARIABLE

__all__ = ["channel_addresses", "open_standard_streams", "start_mpirun"]

#: Variables by which a process manager around us would confuse the one we start.
_OUTER = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "PRTE_LAUNCHED", "HYDI_")


def start_mpirun(plan: LaunchPlan, *, address: str, key: bytes) -> tuple[int, list[OutputPipe]]:
    """Start the plan's command; return its pid and what it writes itself (its instances write to the channel).

    The address and the key of the channel go into its environment, never on a command line.
    """
    argv = plan.command.argv
    null = os.open(os.devnull, os.O_RDONLY)
    pipes = [os.pipe(), os.pipe()]
    try:
        pid = processes.spawn(
            argv,
            executable=argv[0],
            environment=_environment(plan, address, key),
            cwd=plan.cwd,
            streams=(null, pipes[0][1], pipes[1][1]),
            session=True,
            death_signal=signal.SIGTERM,
        )
    except OSError as error:
        raise PoprunError(f"{argv[0]} cannot be started: {error.strerror}; name another with --mpi") from None
    for descriptor in (null, pipes[0][1], pipes[1][1]):
        os.close(descriptor)
    if plan.remote_hosts:
        watch_over(pid)
    return pid, [OutputPipe(number, pipe[0]) for number, pipe in enumerate(pipes, start=1)]


def channel_addresses(plan: LaunchPlan) -> tuple[str, ...]:
    """Where to listen for supervisors: on the interfaces that lead to the other hosts, or the loopback only."""
    if not plan.remote_hosts:
        return ("127.0.0.1",)
    from poprun_py.site.network import addresses_towards, interface_in, interfaces  # not needed on one host

    chosen = interface_in(plan.network, interfaces()) if plan.network else None
    return (chosen.address,) if chosen else addresses_towards(plan.remote_hosts)


def open_standard_streams() -> None:
    """See to it that descriptors 0, 1 and 2 lead somewhere, so that nothing of ours takes their place."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            return


def _environment(plan: LaunchPlan, address: str, key: bytes) -> dict[str, str]:
    """The user's, with what the command and the supervisors need."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OUTER)}
    return {
        **inherited,
        **plan.command.environment,
        ADDRESS_VARIABLE: address,
        KEY_VARIABLE: key.hex(),
        RANK_VARIABLE: plan.command.rank_variable,
        PATH_VARIABLE: os.pathsep.join(_package_folders()),
    }


def _package_folders() -> list[str]:
    """Where the supervisors find what they import."""
    return [
        os.path.dirname(os.path.dirname(os.path.abspath(str(package.__file__)))) for package in (poprun_py, msgpack)
    ]
