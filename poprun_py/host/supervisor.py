"""Supervisor: the process that runs one instance on its host, forwards its output, and cleans up after it.

Whatever ends the job (a Stop from the launcher, the launcher's death, a signal from the process manager), the
program and all its descendants are ended here: first with SIGTERM, then with SIGKILL.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from poprun_py.errors import ChannelError
from poprun_py.host.child_process import ChildProcess, StreamForwarder
from poprun_py.host.hang_detection import HangDetector
from poprun_py.host.notice_socket import NoticeSocket
from poprun_py.host.process_manager import ProcessManager
from poprun_py.linux import processes
from poprun_py.linux.event_sources import SignalPipe, Timers
from poprun_py.linux.job_record import JobRecord
from poprun_py.linux.mpi_files import MpiFiles, folders_here
from poprun_py.linux.session_folders import began_at, folders_of, folders_without_daemon
from poprun_py.numa.binding import bind
from poprun_py.numa.placement import Placement, place
from poprun_py.numa.topology import discover_local
from poprun_py.wire import messages
from poprun_py.wire.channel import Channel, connect
from poprun_py.wire.messages import LAUNCHER, MPI, OWN, STDERR, UNMANAGED, Start
from poprun_py.wire.variables import ADDRESS_VARIABLE, EXECUTABLE_CACHE_PATH, KEY_VARIABLE, RANK_VARIABLE

if TYPE_CHECKING:
    from poprun_py.host.canary import Canary

CONNECT_TIMEOUT = 20.0

#: Seconds between two checks of whether the launcher's host still answers.
_LAUNCHER_CHECK_INTERVAL = 2.0

#: Seconds from SIGTERM to SIGKILL when the launcher is gone or the process manager wants the instance to end.
_GRACE = 0.5

#: Seconds that the program has to end by itself, with its own exit code, when the process manager ends the job.
_SETTLE = 0.1

#: Seconds that the process manager has to end once the launcher is gone.
_MANAGER_TIMEOUT = 0.7

#: In the environment: the name by which a daemon with PMIx, as those of Open MPI and Slurm, knows the job.
_PMIX_JOB = "PMIX_NAMESPACE"

#: Seconds that the process of a program has to end after an exception has ended the program.
_LEAVE_TIMEOUT = 30.0

#: Seconds that processes which outlive the program (a resource tracker, say) have to end by themselves.
_LINGER = 0.3
#: Variables that name the network interface to use: of UCX and libfabric (MPICH), and of gloo (PyTorch).
NETWORK_VARIABLES = ("UCX_NET_DEVICES", "FI_TCP_IFACE", "GLOO_SOCKET_IFNAME")


def supervise(*, holder: int, manager: int, canary: Canary) -> int:
    """Run one instance until it has ended and the launcher has sent Leave; return the exit code.

    ``holder`` is the pid of our parent, ``manager`` that of its parent: the MPI's process manager, unless it is dead.
    ``canary`` leads to a process in the group of our parent.
    """
    signals = SignalPipe((signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    processes.adopt_orphans()
    processes.die_with_parent(signal.SIGTERM, holder)
    environment = os.environ
    address, key = environment.pop(ADDRESS_VARIABLE), bytes.fromhex(environment.pop(KEY_VARIABLE))
    rank_variable = environment.pop(RANK_VARIABLE)
    rank = int(environment[rank_variable])
    process_manager = ProcessManager(manager, slurm=rank_variable.startswith("SLURM_"))
    try:
        channel = connect(address, key, timeout=CONNECT_TIMEOUT)
    except ChannelError as error:
        print(f"poprun-py supervisor {rank}: {error}", file=sys.stderr, flush=True)
        return 1
    channel.send(messages.Hello(rank, os.uname().nodename, os.getpid()))
    supervisor = Supervisor(channel, signals, process_manager, holder, canary)
    supervisor.run()
    record = supervisor.record
    if not supervisor.launcher_lives:
        if os.getppid() == holder:
            processes.kill(holder, signal.SIGUSR1)
        if not rank_variable.startswith("SLURM_"):  # Slurm's ends by itself, and ends this process too
            processes.close_all_but(record.fileno() if record else 0)  # it may wait for the end of its pipes
            process_manager.outlive(_MANAGER_TIMEOUT)
    if record:
        supervisor.list_abandoned()
        record.close(spared=folders_of(process_manager.pid, folders_here()))
    return 0


class Supervisor:
    """The event loop of one instance."""

    def __init__(
        self, channel: Channel, signals: SignalPipe, manager: ProcessManager, holder: int, canary: Canary
    ) -> None:
        self._channel = channel
        self._signals = signals
        self._timers = Timers()
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ, self._on_readable)
        self._selector.register(signals, selectors.EVENT_READ, self._on_signal)
        self._manager = manager
        self._holder, self._canary = holder, canary
        self._notices = NoticeSocket()
        self._selector.register(self._notices, selectors.EVENT_READ, self._on_notices)
        self._hangs = HangDetector(self._timers, self._send)
        self._streams = StreamForwarder(
            self._selector, self._send, has_launcher=lambda: self.launcher_lives, on_output=self._on_output
        )
        self.record: JobRecord | None = None
        self._files: MpiFiles | None = None
        self._pmix_job, self._started_at = os.environ.get(_PMIX_JOB, ""), time.time()
        self._pids: set[int] = set()  # processes that the program has started, if there is a PMIx job
        self._program = ChildProcess()
        self._cause = OWN
        self._childless = False
        self._is_stopping = False
        self._reported = False
        self._done = False
        self.launcher_lives = True  # after run: whether it has sent Leave, rather than died

    def run(self) -> None:
        self._timers.call_later(_LAUNCHER_CHECK_INTERVAL, self._check_launcher)
        while not self._done:
            self._update_registrations()
            for key, _ in self._selector.select(self._timers.until_next()):
                key.data()
            self._timers.run_due()
            self._check_gone()
        self._channel.flush(timeout=2.0)

    def _update_registrations(self) -> None:
        self._streams.update_registrations()
        if self.launcher_lives:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._channel.wants_to_send else 0)
            self._selector.modify(self._channel, events, self._on_readable)

    # -- the launcher ---------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        self._channel.push()
        try:
            for message in self._channel.receive():
                self._on_message(message)
        except ChannelError:
            self._lose_launcher()

    def _check_launcher(self) -> None:
        if self.launcher_lives:
            if self._channel.is_silent:
                self._lose_launcher()
            self._timers.call_later(_LAUNCHER_CHECK_INTERVAL, self._check_launcher)

    def _lose_launcher(self) -> None:
        self._selector.unregister(self._channel)
        self.launcher_lives = False
        self._stop(signal.SIGTERM, _GRACE, LAUNCHER)

    def _on_message(self, message: messages.Message) -> None:
        match message:
            case messages.Start():
                self._start(message)
            case messages.Credit(amount):
                self._streams.add_credit(amount)
            case messages.Input(data):
                self._streams.write_input(data)
            case messages.Signal(number):
                self._program.signal(number)
            case messages.Stop(number, grace, settle):
                self._stop(number, grace, LAUNCHER, settle)
            case messages.Leave():
                self._done = True

    def _send(self, message: messages.Message) -> None:
        if self.launcher_lives:
            self._channel.send(message)

    # -- the program ----------------------------------------------------------------------------------------------

    def _start(self, order: messages.Start) -> None:
        if self._program.status is not None:
            return
        for name in order.unset:
            os.environ.pop(name, None)
        setup = set_up_instance(order)
        environment = {**setup.environment, **self._notices.environment}
        try:
            environment |= self._open_record(order)
            self._program.start(order, environment)
        except OSError as error:
            self._send(messages.NotStarted(f"{error.strerror}: {error.filename}"))
            self._childless, self._program.status = True, 127
        else:
            cpus, memory = list(setup.placement.cpus), list(setup.placement.memory)
            self._send(messages.Started(self._program.pid, cpus, memory, setup.warning, time.monotonic()))
            self._hangs.start(self._program.pid)
        self._streams.open(self._program.outputs, self._program.input)
        self._notices.started()
        if order.usage_interval:
            self._timers.call_later(order.usage_interval, lambda: self._send_usage(order.usage_interval))

    def _open_record(self, order: messages.Start) -> dict[str, str]:
        """Open the record of the job's files on this host; return the variables of its folders."""
        if not order.folder:
            return {}
        needs_folder = order.environment.get(EXECUTABLE_CACHE_PATH) == order.folder
        try:
            self.record = JobRecord(order.folder)
            if needs_folder:
                self.record.make_folder()
        except OSError:
            if needs_folder:
                raise
            return {}
        if self._channel.is_between_hosts:
            self.record.add(folders_of(self._manager.pid, folders_here()))
        if order.local_index == 0:
            self._files = MpiFiles(self._family, folders_here(), is_told=self._channel.is_between_hosts)
            if self._files.fileno() >= 0:
                self._selector.register(self._files, selectors.EVENT_READ, self._on_files)
        shared = self.record.make_shared_folder() if order.shared else ""
        return dict.fromkeys(order.shared, shared) if shared else {}

    def _family(self) -> list[int]:
        """The processes of the job on this host."""
        return [*self._manager.family(), *processes.descendants(os.getpid())]

    def _on_files(self) -> None:
        if self._files and self._files.read():
            self._list_files()

    def _list_files(self) -> None:
        """List the files that the MPI has made for this job, while the processes live that use them."""
        if self.record and not self._files and not self.launcher_lives:
            self._files = MpiFiles(self._family, folders_here())
        if self.record and self._files:
            self.record.add(self._files.new_files())
        if self._pmix_job:
            self._pids.update(processes.descendants(os.getpid()))

    def list_abandoned(self) -> None:
        """List files that the MPI of this host has made for processes that have died since."""
        if self.record and self._pmix_job:
            pids, since = self._pids | {self._program.pid}, began_at(self.record.path, self._started_at)
            self.record.add(folders_without_daemon(pids, self._pmix_job, folders_here(), since))
        if self.record and self._files and (self._channel.is_between_hosts or not self.launcher_lives):
            self.record.add([*self._files.new_files(), *self._files.abandoned()])

    def _send_usage(self, interval: float) -> None:
        """Send the program's resource usage and its reports, and again every ``interval`` seconds."""
        if not self._program.is_running or not self.launcher_lives:
            return
        self._send(messages.Usage(*processes.resource_usage(self._program.pid)))
        if report := self._notices.take_report():
            self._send(report)
        self._timers.call_later(interval, lambda: self._send_usage(interval))

    def _stop(self, number: int, grace: float, cause: str, settle: float = 0.0) -> None:
        """Ask the program to end now, or after ``settle`` seconds, and kill it ``grace`` seconds later."""
        self._is_stopping = True
        self._list_files()
        if not self._program.pid and self._program.status is None:  # it will not be started now
            self._program.status, self._childless = 0, True
        self._timers.call_later(settle, lambda: self._send_stop(number, cause))
        self._timers.call_later(settle + grace, lambda: self._send_stop(signal.SIGKILL, cause))

    def _send_stop(self, number: int, cause: str) -> None:
        if self._program.is_running:
            if self._cause == OWN and not processes.is_ending(self._program.pid):  # else it has ended by itself
                self._cause = cause
            self._program.signal(number)

    def _on_signal(self) -> None:
        if self._signals.read() - {signal.SIGCHLD}:
            self._examine_holder()
            self._stop(signal.SIGTERM, _GRACE, MPI, settle=_SETTLE)
        dead, left = processes.reap()
        for pid, status in dead:
            if pid == self._program.pid:
                self._on_exit(status)
        self._childless = not left

    def _examine_holder(self) -> None:
        """If the holder is gone before anybody has ended the instance, ask the canary whether that was the MPI."""
        is_early = not self._is_stopping and self._program.status is None
        if is_early and self._manager.ends_groups and os.getppid() != self._holder:
            self._selector.register(self._canary, selectors.EVENT_READ, self._on_canary)
            self._canary.ask()

    def _on_canary(self) -> None:
        self._selector.unregister(self._canary)
        if self._canary.has_answered():
            self._send(messages.Orphaned(self._holder, time.monotonic()))
        self._canary.end()

    def _on_notices(self) -> None:
        for notice in self._notices.receive():
            self._send(notice)
            if isinstance(notice, messages.Leaving):
                self._hangs.stop()  # it does not wait in MPI_Finalize
                if notice.raised:
                    self._timers.call_later(_LEAVE_TIMEOUT, self._check_left)

    def _check_left(self) -> None:
        if self._program.is_running:
            self._send(messages.Hung())

    def _on_exit(self, status: int) -> None:
        at = time.monotonic()
        self._on_notices()
        self._program.status = status
        self._hangs.stop()
        self._canary.end()
        if self._cause == OWN and status > 0 and self._manager.is_ending:
            self._cause = UNMANAGED
        self._streams.drain()
        self._send(messages.Exited(status, self._cause, at))
        self._timers.call_later(_LINGER, self._end_leftovers)

    def _end_leftovers(self) -> None:
        """Kill processes that have outlived the program, and stop waiting for pipes that others hold open."""
        if self._childless:
            self._timers.call_later(1.0, self._streams.close_outputs)
        for pid in processes.descendants(os.getpid()):
            processes.kill(pid, signal.SIGKILL)
        if not self._childless:
            self._timers.call_later(0.05, self._end_leftovers)

    def _on_output(self, stream: int, data: bytes) -> None:
        if stream == STDERR:
            self._hangs.on_stderr(data)

    # -- the end --------------------------------------------------------------------------------------------------

    def _check_gone(self) -> None:
        """Send Gone once no process is left; without a launcher, end instead of waiting for Leave."""
        is_there = self._program.status is None or not self._childless or self._streams.has_open_outputs
        if is_there or self._canary.is_asked:
            return
        if self.launcher_lives and not self._reported:
            self._reported = True
            self._send(messages.Gone())
        elif not self.launcher_lives:
            self._done = True


class InstanceSetup(NamedTuple):
    """Where the instance runs, what to add to its environment, and a warning about what could not be set."""

    placement: Placement
    environment: dict[str, str]
    warning: str = ""


def set_up_instance(order: Start) -> InstanceSetup:
    """Bind this process, and so everything that it starts; return what else the instance needs."""
    placement = place(discover_local(), order.placement, index=order.local_index, count=order.local_count)
    environment = dict.fromkeys(order.threads, str(placement.threads))
    warnings = [bind(placement)]
    if order.network:
        from poprun_py.site.network import interface_in, interfaces  # rarely needed

        interface = interface_in(order.network, interfaces())
        if interface:
            unset = [name for name in NETWORK_VARIABLES if name not in order.environment]
            environment |= dict.fromkeys(unset, interface.name)
        else:
            warnings.append(f"there is no interface in {order.network} (--host-subnet); the MPI chooses one")
    return InstanceSetup(placement, environment, "; ".join(filter(None, warnings)))
