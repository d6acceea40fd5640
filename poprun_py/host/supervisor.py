"""Supervisor: runs one instance on its host, passes its output on, and sees to it that nothing of it is left.

Whatever ends the job (a Stop of the launcher, the launcher's death, the process manager's signal), the program and
all that descends from it are ended here, gently first.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from typing import TYPE_CHECKING

from poprun_py.errors import ChannelError
from poprun_py.host.child_process import Child
from poprun_py.host.hang_detection import HangWatch
from poprun_py.host.instance_setup import arrange
from poprun_py.host.streams import Streams
from poprun_py.linux import processes
from poprun_py.linux.leftovers import sweep
from poprun_py.linux.resource_usage import usage
from poprun_py.linux.signals import Wakeup
from poprun_py.linux.timers import Alarms
from poprun_py.wire import messages
from poprun_py.wire.channel import ADDRESS_VARIABLE, KEY_VARIABLE, Channel, connect
from poprun_py.wire.messages import LAUNCHER, MPI, OWN, UNMANAGED

if TYPE_CHECKING:
    from poprun_py.host.progress_socket import Reports

__all__ = ["CONNECT_TIMEOUT", "RANK_VARIABLE", "supervise"]

#: Names the variable in which the MPI's process manager gives a process its rank.
RANK_VARIABLE = "POPRUN_PY_RANK_VARIABLE"

CONNECT_TIMEOUT = 20.0

_STDERR = 2

#: Seconds between two looks at whether the launcher's host still answers.
_LOOK_EVERY = 2.0

#: Seconds from SIGTERM to SIGKILL when the launcher is gone or the process manager wants the instance to end.
_GRACE = 0.5

#: Seconds a program may take to end by itself when the process manager ends the job: its exit code is its own then.
_SETTLE = 0.1

#: Seconds that the process manager may take to end once the launcher is gone.
_MANAGER_TIMEOUT = 0.7

#: Seconds for what the program has left behind (a resource tracker, say) to end by itself.
_LINGER = 0.3


def supervise(*, holder: int, manager: int) -> int:
    """Serve one instance until it is gone and the launcher has dismissed us; return the exit code.

    ``holder`` is our parent, ``manager`` (the MPI's process manager) is the parent of that.
    """
    wakeup = Wakeup((signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    processes.adopt_orphans()
    processes.die_with_parent(signal.SIGTERM, holder)
    environment = os.environ
    address, key = environment.pop(ADDRESS_VARIABLE), bytes.fromhex(environment.pop(KEY_VARIABLE))
    rank_variable = environment.pop(RANK_VARIABLE)
    rank = int(environment[rank_variable])
    try:
        channel = connect(address, key, timeout=CONNECT_TIMEOUT)
    except ChannelError as error:
        print(f"poprun-py supervisor {rank}: {error}", file=sys.stderr, flush=True)
        return 1
    channel.send(messages.Hello(rank, os.uname().nodename, os.getpid()))
    supervisor = Supervisor(channel, wakeup, manager)
    supervisor.run()
    supervisor.remove_folder()
    if not supervisor.dismissed:
        processes.kill(holder, signal.SIGUSR1)
        if not rank_variable.startswith("SLURM_"):  # Slurm's own ends by itself, and takes us with it
            _outlive(manager)
        sweep(since=supervisor.since)
    return 0


def _outlive(manager: int) -> None:
    """Wait until the process manager has ended, and with it what it would leave behind; else end it."""
    os.closerange(0, 1024)  # it may wait for the pipes that it gave us
    end = time.monotonic() + _MANAGER_TIMEOUT
    while processes.is_alive(manager):
        if time.monotonic() > end:
            processes.kill(manager, signal.SIGKILL)
        time.sleep(0.01)


def _reports() -> Reports:
    from poprun_py.host.progress_socket import Reports  # only where somebody watches: the import takes long

    return Reports()


class Supervisor:
    """The event loop of one instance."""

    def __init__(self, channel: Channel, wakeup: Wakeup, manager: int) -> None:
        self._channel = channel
        self._wakeup = wakeup
        self._alarms = Alarms()
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ, self._listen)
        self._selector.register(wakeup, selectors.EVENT_READ, self._on_signal)
        self._manager = manager
        self._reports: Reports | None = None
        self._hangs = HangWatch(self._alarms, self._tell)
        self._streams = Streams(self._selector, self._tell, is_heard=lambda: self._launcher_lives, hear=self._hear)
        self._folder = ""
        self._program = Child()
        self._cause = OWN
        self._childless = False
        self._reported = False
        self._done = False
        self._launcher_lives = True
        self.since = time.time()

    def run(self) -> None:
        self._alarms.set(_LOOK_EVERY, self._check_launcher)
        while not self._done:
            self._watch()
            for key, _ in self._selector.select(self._alarms.until_next()):
                key.data()
            self._alarms.ring()
            self._check_gone()
        self._channel.flush(timeout=2.0)

    def _watch(self) -> None:
        self._streams.watch()
        if self._launcher_lives:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._channel.wants_to_send else 0)
            self._selector.modify(self._channel, wanted, self._listen)

    @property
    def dismissed(self) -> bool:
        """Did the launcher let us go, rather than die?"""
        return self._launcher_lives

    # -- the launcher ---------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._channel.push()
        try:
            for message in self._channel.receive():
                self._obey(message)
        except ChannelError:
            self._lose_launcher()

    def _check_launcher(self) -> None:
        if self._launcher_lives:
            if self._channel.is_silent:
                self._lose_launcher()
            self._alarms.set(_LOOK_EVERY, self._check_launcher)

    def _lose_launcher(self) -> None:
        self._selector.unregister(self._channel)
        self._launcher_lives = False
        self._stop(signal.SIGTERM, _GRACE, LAUNCHER)

    def _obey(self, message: messages.Message) -> None:
        match message:
            case messages.Start():
                self._start(message)
            case messages.Credit(amount):
                self._streams.add_credit(amount)
            case messages.Input(data):
                self._streams.give(data)
            case messages.Signal(number):
                self._program.signal(number)
            case messages.Stop(number, grace):
                self._stop(number, grace, LAUNCHER)
            case messages.Leave(failed):
                self._done = True
                if failed and self._channel.is_between_hosts:  # the launcher sweeps its own host
                    sweep(since=self.since)

    def _tell(self, message: messages.Message) -> None:
        if self._launcher_lives:
            self._channel.send(message)

    # -- the program ----------------------------------------------------------------------------------------------

    def _start(self, order: messages.Start) -> None:
        if self._program.status is not None:
            return
        self.since = min(self.since, order.since)  # the clocks of two hosts differ
        for name in order.unset:
            os.environ.pop(name, None)
        surroundings = arrange(order)
        self._folder = order.folder
        reports = _reports() if order.watch else None
        environment = {**surroundings.environment, **(reports.environment if reports else {})}
        try:
            if order.folder:
                os.makedirs(order.folder, mode=0o700, exist_ok=True)
            self._program.start(order, environment)
        except OSError as error:
            self._tell(messages.NotStarted(f"{error.strerror}: {error.filename}"))
            self._childless, self._program.status = True, 127
        else:
            where = surroundings.placement
            cpus, memory = list(where.cpus), list(where.memory)
            self._tell(messages.Started(self._program.pid, cpus, memory, surroundings.warning))
            self._hangs.start(self._program.pid)
        self._streams.open(self._program.outputs, self._program.input)
        if reports:
            reports.started()
            self._reports = reports
            self._alarms.set(order.watch, lambda: self._tell_usage(order.watch))

    def _tell_usage(self, interval: float) -> None:
        """Say what the program takes and what it has reported, and again every ``interval`` seconds."""
        if not self._program.is_running or not self._launcher_lives:
            return
        self._tell(messages.Usage(*usage(self._program.pid)))
        report = self._reports.latest() if self._reports else None
        if report:
            self._tell(report)
        self._alarms.set(interval, lambda: self._tell_usage(interval))

    def _stop(self, number: int, grace: float, cause: str, settle: float = 0.0) -> None:
        """Ask the program to end now, or after ``settle`` seconds, and kill it ``grace`` seconds later."""
        if not self._program.pid and self._program.status is None:  # it will not be started any more
            self._program.status, self._childless = 0, True
        self._alarms.set(settle, lambda: self._send_stop(number, cause))
        self._alarms.set(settle + grace, lambda: self._send_stop(signal.SIGKILL, cause))

    def _send_stop(self, number: int, cause: str) -> None:
        if self._program.is_running:
            self._cause = cause if self._cause == OWN else self._cause
            self._program.signal(number)

    def _on_signal(self) -> None:
        if self._wakeup.read() - {signal.SIGCHLD}:
            self._stop(signal.SIGTERM, _GRACE, MPI, settle=_SETTLE)
        dead, left = processes.reap()
        for pid, status in dead:
            if pid == self._program.pid:
                self._on_exit(status)
        self._childless = not left

    def _on_exit(self, status: int) -> None:
        at = time.monotonic()
        self._program.status = status
        self._hangs.stop()
        if self._cause == OWN and status > 0 and processes.is_ending(self._manager):
            self._cause = UNMANAGED
        self._streams.drain()
        self._tell(messages.Exited(status, self._cause, at))
        self._alarms.set(_LINGER, self._end_leftovers)

    def _end_leftovers(self) -> None:
        """End what outlived the program; and do not wait for pipes that somebody else holds open."""
        if self._childless:
            self._alarms.set(1.0, self._streams.close_outputs)
        for pid in processes.descendants(os.getpid()):
            processes.kill(pid, signal.SIGKILL)
        if not self._childless:
            self._alarms.set(0.05, self._end_leftovers)

    def _hear(self, stream: int, data: bytes) -> None:
        if stream == _STDERR:
            self._hangs.hear(data)

    def remove_folder(self) -> None:
        """Remove what was made for the job; every supervisor of a host tries."""
        if self._folder:
            import shutil  # rarely needed

            shutil.rmtree(self._folder, ignore_errors=True)

    # -- the end --------------------------------------------------------------------------------------------------

    def _check_gone(self) -> None:
        """Report once nothing is left; then wait to be dismissed, or leave if nobody is there to do so."""
        if self._program.status is None or not self._childless or self._streams.has_open_outputs:
            return
        if self._launcher_lives and not self._reported:
            self._reported = True
            self._tell(messages.Gone())
        elif not self._launcher_lives:
            self._done = True
