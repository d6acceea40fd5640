"""Supervisor: runs one instance on its host, passes its output on, and sees to it that nothing of it is left.

Whatever ends the job (a Stop of the launcher, the launcher's death, the process manager's signal), the program and
all that descends from it are ended here, gently first.
"""

from __future__ import annotations

import functools
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from poprun_py import messages, processes
from poprun_py.alarms import Alarms
from poprun_py.channel import ADDRESS_VARIABLE, KEY_VARIABLE, Channel, connect
from poprun_py.errors import ChannelError
from poprun_py.hang import LOOK_EVERY, PATIENCE, WAIT_EVERY, WAITS, hangs
from poprun_py.messages import LAUNCHER, MPI, OWN, UNMANAGED
from poprun_py.pipes import InputPipe, OutputPipe
from poprun_py.surroundings import arrange
from poprun_py.sweep import sweep
from poprun_py.usage import usage
from poprun_py.wakeup import Wakeup

if TYPE_CHECKING:
    from poprun_py.reports import Reports

__all__ = ["CONNECT_TIMEOUT", "RANK_VARIABLE", "WINDOW", "supervise"]

#: Names the variable in which the MPI's process manager gives a process its rank.
RANK_VARIABLE = "POPRUN_PY_RANK_VARIABLE"

#: Bytes of output that may be on their way to the launcher; the program waits when it has written more.
WINDOW = 1 << 19

CONNECT_TIMEOUT = 20.0

STDERR = 2

#: Bytes of stderr in which a traceback is looked for.
_LAST_WORDS = 1 << 14

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
    from poprun_py.reports import Reports  # only where somebody watches: the import takes long

    return Reports()


def _is_uncaught(words: bytes) -> bool:
    from poprun_py.uncaught import find_uncaught  # few programs raise: the import takes long

    return find_uncaught(words) is not None


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
        self._last_words = b""  # of stderr
        self._folder = ""
        self._outputs: list[OutputPipe] = []
        self._input: InputPipe | None = None
        self._program = 0  # its pid
        self._status: int | None = None
        self._cause = OWN
        self._credit = WINDOW
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
                self._credit += amount
            case messages.Input(data) if self._input:
                self._input.give(data)
            case messages.Signal(number) if self._running:
                processes.kill_group(self._program, number)
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

    @property
    def _running(self) -> bool:
        return bool(self._program) and self._status is None

    def _start(self, order: messages.Start) -> None:
        if self._status is not None:
            return
        self.since = min(self.since, order.since)  # the clocks of two hosts differ
        for name in order.unset:
            os.environ.pop(name, None)
        surroundings = arrange(order)
        self._folder = order.folder
        reports = _reports() if order.watch else None
        null = os.open(os.devnull, os.O_RDWR)
        source, feed = os.pipe() if order.has_input else (null, -1)
        pipes = [os.pipe(), os.pipe()]
        try:
            if order.folder:
                os.makedirs(order.folder, mode=0o700, exist_ok=True)
            self._program = processes.spawn(
                order.argv,
                executable=order.executable,
                environment={
                    **os.environ,
                    **order.environment,
                    **surroundings.environment,
                    **(reports.environment if reports else {}),
                },
                cwd=order.cwd,
                streams=(source, pipes[0][1], pipes[1][1]),
                session=False,
                death_signal=signal.SIGKILL,
            )
        except OSError as error:
            self._tell(messages.NotStarted(f"{error.strerror}: {error.filename}"))
            self._childless, self._status = True, 127
        else:
            self._tell(
                messages.Started(
                    self._program,
                    list(surroundings.placement.cpus),
                    list(surroundings.placement.memory),
                    surroundings.warning,
                )
            )
            self._alarms.set(WAIT_EVERY, self._look_for_wait)
        for descriptor in {null, source, pipes[0][1], pipes[1][1]}:
            os.close(descriptor)
        self._outputs = [OutputPipe(number, pipe[0]) for number, pipe in enumerate(pipes, start=1)]
        self._input = InputPipe(feed) if order.has_input else None
        if reports:
            reports.started()
            self._reports = reports
            self._alarms.set(order.watch, lambda: self._tell_usage(order.watch))

    def _tell_usage(self, interval: float) -> None:
        """Say what the program takes and what it has reported, and again every ``interval`` seconds."""
        if not self._running or not self._launcher_lives:
            return
        self._tell(messages.Usage(*usage(self._program)))
        report = self._reports.latest() if self._reports else None
        if report:
            self._tell(report)
        self._alarms.set(interval, lambda: self._tell_usage(interval))

    def _look_for_hang(self, words: bytes, patience: float) -> None:
        """Is a program that wrote a traceback last, and nothing since, kept from ending by MPI?"""
        if not self._running or self._last_words != words:
            return
        if not any(map(hangs, (self._program, *processes.descendants(self._program)))):
            patience = PATIENCE
        elif patience <= 0:
            self._tell(messages.Hung())
            return
        self._alarms.set(LOOK_EVERY, lambda: self._look_for_hang(words, patience - LOOK_EVERY))

    def _look_for_wait(self, found: int = 0) -> None:
        """Has the program ended, but waits for the others? Its exit code cannot be known before it goes on."""
        if not self._running:
            return
        found = found + 1 if hangs(self._program) else 0
        if found == WAITS:
            self._tell(messages.Waiting())
        else:
            self._alarms.set(WAIT_EVERY, lambda: self._look_for_wait(found))

    def _stop(self, number: int, grace: float, cause: str, settle: float = 0.0) -> None:
        """Ask the program to end now, or after ``settle`` seconds, and kill it ``grace`` seconds later."""
        if not self._program and self._status is None:  # it will not be started any more
            self._status, self._childless = 0, True
        self._alarms.set(settle, lambda: self._send_stop(number, cause))
        self._alarms.set(settle + grace, lambda: self._send_stop(signal.SIGKILL, cause))

    def _send_stop(self, number: int, cause: str) -> None:
        if self._running:
            self._cause = cause if self._cause == OWN else self._cause
            processes.kill_group(self._program, number)

    def _on_signal(self) -> None:
        if self._wakeup.read() - {signal.SIGCHLD}:
            self._stop(signal.SIGTERM, _GRACE, MPI, settle=_SETTLE)
        dead, left = processes.reap()
        for pid, status in dead:
            if pid == self._program:
                self._on_exit(status)
        self._childless = not left

    def _on_exit(self, status: int) -> None:
        at = time.monotonic()
        self._status = status
        if self._cause == OWN and status > 0 and processes.is_ending(self._manager):
            self._cause = UNMANAGED
        for output in self._outputs:
            self._forward(output)
        self._tell(messages.Exited(status, self._cause, at))
        if self._input:
            self._drop(self._input)
        self._alarms.set(_LINGER, self._end_leftovers)

    def _end_leftovers(self) -> None:
        """End what outlived the program; and do not wait for pipes that somebody else holds open."""
        if self._childless:
            self._alarms.set(1.0, self._close_outputs)
        for pid in processes.descendants(os.getpid()):
            processes.kill(pid, signal.SIGKILL)
        if not self._childless:
            self._alarms.set(0.05, self._end_leftovers)

    # -- its output and input -------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Listen to what can be dealt with now: output while there is credit, room for input while there is some."""
        for output in self._outputs:
            self._want(output, selectors.EVENT_READ, self._credit > 0, functools.partial(self._forward, output))
        if self._input:
            self._want(self._input, selectors.EVENT_WRITE, self._input.is_waiting, self._feed)
        if self._launcher_lives:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._channel.wants_to_send else 0)
            self._selector.modify(self._channel, wanted, self._listen)

    def _want(self, pipe: OutputPipe | InputPipe, event: int, wanted: bool, react: Callable[[], None]) -> None:
        if not pipe.is_open:
            return
        known = pipe.fileno() in self._selector.get_map()
        if wanted and not known:
            self._selector.register(pipe, event, react)
        elif known and not wanted:
            self._selector.unregister(pipe)

    def _forward(self, output: OutputPipe) -> None:
        """Pass on what the pipe holds, within the credit."""
        while output.is_open and (self._credit > 0 or not self._launcher_lives):
            data = output.read()
            if data is None:
                return
            if data:
                self._credit -= len(data)
                self._note(output.number, data)
                self._tell(messages.Output(output.number, data))
            else:
                self._drop(output)

    def _note(self, stream: int, data: bytes) -> None:
        """Remember the last words, and look what becomes of a program that wrote a traceback."""
        if stream == STDERR:
            self._last_words = words = (self._last_words + data)[-_LAST_WORDS:]
            if b"Traceback" in words and _is_uncaught(words):
                self._alarms.set(LOOK_EVERY, lambda: self._look_for_hang(words, PATIENCE))

    def _feed(self) -> None:
        if self._input and self._input.push():
            if self._input.is_finished:
                self._drop(self._input)
            self._tell(messages.InputTaken())

    def _drop(self, pipe: OutputPipe | InputPipe) -> None:
        if pipe.is_open and pipe.fileno() in self._selector.get_map():
            self._selector.unregister(pipe)
        pipe.close()

    def _close_outputs(self) -> None:
        if self._credit > 0:
            for output in self._outputs:
                self._drop(output)

    def remove_folder(self) -> None:
        """Remove what was made for the job; every supervisor of a host tries."""
        if self._folder:
            import shutil  # rarely needed

            shutil.rmtree(self._folder, ignore_errors=True)

    # -- the end --------------------------------------------------------------------------------------------------

    def _check_gone(self) -> None:
        """Report once nothing is left; then wait to be dismissed, or leave if nobody is there to do so."""
        if self._status is None or not self._childless or any(output.is_open for output in self._outputs):
            return
        if self._launcher_lives and not self._reported:
            self._reported = True
            self._tell(messages.Gone())
        elif not self._launcher_lives:
            self._done = True
