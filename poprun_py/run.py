"""Run: carries a plan out, once: starts mpirun, listens to the supervisors, and tears everything down."""

from __future__ import annotations

import math
import os
import selectors
import signal
import time
from collections import Counter, deque
from collections.abc import Sequence

from poprun_py import messages, processes
from poprun_py.alarms import Alarms
from poprun_py.channel import SILENCE, Channel
from poprun_py.errors import ChannelError
from poprun_py.failure import End, signal_name
from poprun_py.files import Files
from poprun_py.input import Input
from poprun_py.job import Job
from poprun_py.log import Log
from poprun_py.numa import listed
from poprun_py.options import LaunchOptions
from poprun_py.output import LAST_LINES, STDERR, Output
from poprun_py.pipes import OutputPipe
from poprun_py.plan import LaunchPlan
from poprun_py.reception import Reception
from poprun_py.screen import Screen
from poprun_py.start import channel_addresses, start_mpirun
from poprun_py.sweep import sweep
from poprun_py.uncaught import find_uncaught
from poprun_py.view import Row, View
from poprun_py.wakeup import Wakeup

__all__ = ["Run"]

#: Seconds until every supervisor must have reported, plus so much for each.
START_TIMEOUT, START_TIMEOUT_PER_INSTANCE = 30.0, 1.0

#: Seconds between two looks at an mpirun that has not started everything yet, and how many have to find the same.
_CHECK_START, _LOOKS = 0.25, 3

#: Seconds from the end of the grace until everything is killed: with instances here, elsewhere, none at all.
_TEARDOWN, _TEARDOWN_ELSEWHERE, _TEARDOWN_OF_MPIRUN = 0.6, 0.9, 0.3

#: Seconds for mpirun to end after its processes: by itself, and in a job that was told to stop.
_MPIRUN_TIMEOUT, _STOPPED_MPIRUN_TIMEOUT = 5.0, 0.7

#: Seconds in which an instance that made mpirun end the job (MPI_Abort) may report its own exit code.
_SETTLE = 0.2

#: Seconds between two looks at whether the other hosts still answer.
_LOOK_EVERY = 1.0

#: Seconds until the live view appears, and between two pictures of it or two groups of plain lines.
_FIRST_PICTURE, _PICTURES, _PLAIN_LINES = 1.0, 0.5, 10.0

_BOLD_RED, _PLAIN = b"\x1b[1;31m", b"\x1b[0m"


class Run:
    """The event loop of the launcher, from the start of mpirun until nothing of the job is left.

    ``restart`` says how often the job was started before, ``deadline`` (monotonic seconds) when it must be over.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        options: LaunchOptions,
        *,
        wakeup: Wakeup,
        screen: Screen,
        stdin: Input,
        folder: str = "",
        restart: int = 0,
        deadline: float = math.inf,
    ) -> None:
        self._plan = plan
        self._options = options
        self._since = time.time()
        self._wakeup = wakeup
        self._screen = screen
        self._deadline = deadline
        self._log = Log(options.verbosity, screen.stderr)
        self._output = Output(
            len(plan.instances),
            only=options.only_output_from_instance,
            stdout=screen.stdout,
            stderr=screen.stderr,
            live=screen.terminals,
            mixed=screen.is_mixed,
        )
        self._files = (
            Files(options.log_dir, len(plan.instances), restart=restart, nudge=wakeup.nudge)
            if options.log_dir
            else None
        )
        self._view = View([Row(each.index, each.host) for each in plan.instances], began=time.monotonic())
        self._channels: dict[int, Channel] = {}
        self._credits: Counter[int] = Counter()  # bytes dealt with, not yet told
        self._alarms = Alarms()
        self._selector = selectors.PollSelector()  # unlike epoll it takes files, which stdin may be
        self._reception = Reception(
            self._selector,
            self._alarms,
            welcome=self._welcome,
            log=self._log.debug,
            addresses=channel_addresses(plan),
        )
        self._input = stdin
        self._job = Job(
            plan,
            since=self._since,
            has_input=stdin.is_open,
            tell=self._tell,
            restart=restart,
            folder=folder,
            watch=self._watch_interval,
        )
        self._mpirun = 0
        self._mpirun_status: int | None = None
        self._mpirun_text: deque[bytes] = deque(maxlen=64)
        self._killed = False
        self._all_gone = False
        self._order: messages.Stop | None = None  # the last one that has a deadline

    def run(self) -> int:
        self._start()
        self._screen.start()  # threads, so not before mpirun is forked
        if self._files:
            self._files.start()
        while not self._finished:
            for key, _ in self._selector.select(self._alarms.until_next()):
                if key.fd in self._selector.get_map():  # an earlier event of this round may have closed it
                    key.data()
            self._alarms.ring()
            self._after_writes()
            self._watch_teardown()
        return self._finish()

    # -- the start --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        for note in self._plan.notes:
            self._log.info(note)
        self._log.info("Running command: " + " ".join(f"'{word}'" for word in self._plan.command.argv))
        self._mpirun, pipes = start_mpirun(self._plan, address=self._reception.address, key=self._reception.key)
        self._log.info(f"Waiting for mpirun (PID {self._mpirun})")
        self._register_all(pipes)
        if self._plan.remote_hosts:
            self._alarms.set(_LOOK_EVERY, self._check_hosts)
        elif os.path.basename(self._plan.command.argv[0]) != "srun":  # whose instances are none of its children
            self._alarms.set(_CHECK_START, self._check_start)
        patience = START_TIMEOUT + START_TIMEOUT_PER_INSTANCE * len(self._plan.instances)
        self._alarms.set(patience, lambda: self._on_start_timeout(patience))
        if self._deadline < math.inf:
            self._alarms.set(max(0.001, self._deadline - time.monotonic()), self._on_timeout)
        if self._screen.has_pictures:
            self._alarms.set(_FIRST_PICTURE, self._draw)
        elif self._options.progress == "on":
            self._alarms.set(_PLAIN_LINES, self._tell_progress)

    def _register_all(self, mpirun_pipes: list[OutputPipe]) -> None:
        read = selectors.EVENT_READ
        self._selector.register(self._wakeup, read, self._on_wakeup)
        for pipe in mpirun_pipes:
            self._selector.register(pipe, read, lambda pipe=pipe: self._on_mpirun_text(pipe))

    def _on_start_timeout(self, patience: float) -> None:
        if self._job.missing:
            ranks = ", ".join(map(str, self._job.missing))
            self._job.fail(f"instances {ranks} did not start within {patience:g} s", 1)

    def _on_timeout(self) -> None:
        self._job.fail(f"the job did not end within {self._options.timeout:g} s (--timeout)", 124, final=True)

    # -- the supervisors --------------------------------------------------------------------------------------------

    def _welcome(self, hello: messages.Hello, channel: Channel) -> bool:
        if hello.rank in self._channels:
            return False
        if self._has_no_manager(hello):
            self._fail_to_start("its process manager")
        self._channels[hello.rank] = channel
        if not self._job.hello(hello.rank, hello.pid):
            del self._channels[hello.rank]
            return False
        self._log.debug(f"Supervisor {hello.pid} on {hello.host} is ready for instance {hello.rank}")
        self._selector.register(channel, self._interest(channel), lambda: self._on_messages(hello.rank))
        if hello.rank == 0:
            self._await_input()
        return True

    def _has_no_manager(self, hello: messages.Hello) -> bool:
        """Have we adopted the supervisor, because what had started it was gone?"""
        return hello.host == os.uname().nodename and processes.parent(processes.parent(hello.pid)) == os.getpid()

    def _check_start(self, found: int = 0) -> None:
        """Does an mpirun of this host have anything left that could start what is missing? It may wait for ever."""
        if not self._job.missing or self._job.is_stopping or self._mpirun_status is not None:
            return
        found = found + 1 if processes.has_lost_children(self._mpirun) else 0
        if found == _LOOKS:
            self._fail_to_start("all that it had started")
        self._alarms.set(_CHECK_START, lambda: self._check_start(found))

    def _fail_to_start(self, lost: str) -> None:
        self._job.fail(f"mpirun (pid {self._mpirun}) lost {lost} before the instances had started", 1)

    def _on_messages(self, rank: int) -> None:
        channel = self._channels[rank]
        channel.push()
        try:
            for message in channel.receive():
                self._on_message(rank, message)
        except ChannelError as error:
            self._log.debug(f"The channel of instance {rank} is closed: {error}")
            self._lose(rank, "is gone")
            return
        self._selector.modify(channel, self._interest(channel), lambda: self._on_messages(rank))

    def _check_hosts(self) -> None:
        """Give up the supervisors on hosts that are silent; only other hosts can be."""
        for rank, channel in list(self._channels.items()):
            if channel.is_silent:
                self._lose(rank, f"has not answered for {SILENCE:g} s; its host is down, or out of reach")
        self._alarms.set(_LOOK_EVERY, self._check_hosts)

    def _lose(self, rank: int, reason: str) -> None:
        channel = self._channels.pop(rank)
        self._selector.unregister(channel)
        channel.close()
        self._job.lost(rank, reason)

    def _on_message(self, rank: int, message: messages.Message) -> None:
        match message:
            case messages.Output(stream, data) if stream in (1, 2):
                self._on_output(rank, stream, data)
            case messages.Started(pid, cpus, memory, warning):
                where = f"CPUs {listed(cpus)}, memory nodes {listed(memory)}"
                self._log.debug(f"Instance {rank} has pid {pid}; {where}")
                if warning:
                    self._log.info(f"Instance {rank}: {warning}")
                self._job.started(rank, pid)
                self._view.rows[rank].nodes = listed(memory)
            case messages.NotStarted(reason):
                self._job.not_started(rank, reason)
            case messages.Exited():
                self._job.exited(rank, message)
            case messages.Gone():
                self._finish_output(rank)
                self._job.gone(rank)
            case messages.Usage():
                self._view.rows[rank].take_usage(message, time.monotonic())
            case messages.Report():
                self._view.rows[rank].take_report(message, time.monotonic())
            case messages.Hung():
                self._job.hung(rank)
            case messages.InputTaken():
                self._await_input()
            case _:
                raise ChannelError(f"an unexpected {type(message).__name__} message")

    def _on_output(self, rank: int, stream: int, data: bytes) -> None:
        """Show it and keep it; the instance may write as much again once both are done."""
        places = 2 if self._files else 1

        def done() -> None:
            nonlocal places
            places -= 1
            if not places:
                self._credits[rank] += len(data)

        self._output.write(rank, stream, data, done)
        if self._files:
            self._files.write(rank, stream, data, done)

    def _finish_output(self, rank: int) -> None:
        self._output.finish(rank)
        if self._files:
            self._files.finish(rank)

    def _tell(self, rank: int, message: messages.Message) -> None:
        channel = self._channels.get(rank)
        if channel is not None:
            channel.send(message)
            if channel.wants_to_send and channel.fileno() in self._selector.get_map():
                self._selector.modify(channel, self._interest(channel), lambda: self._on_messages(rank))

    def _interest(self, channel: Channel) -> int:
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.wants_to_send else 0)

    # -- the user ---------------------------------------------------------------------------------------------------

    def _await_input(self) -> None:
        if self._input.is_open and self._input.fileno() not in self._selector.get_map():
            self._selector.register(self._input, selectors.EVENT_READ, self._on_input)

    def _on_input(self) -> None:
        self._selector.unregister(self._input)
        self._tell(0, messages.Input(self._input.read()))

    def _on_wakeup(self) -> None:
        for number in self._wakeup.read():
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._on_interrupt(number)
            elif number in (signal.SIGUSR1, signal.SIGUSR2):
                self._job.forward(number)
        dead, _ = processes.reap()
        for pid, status in dead:
            if pid == self._mpirun:
                self._on_mpirun_end(status)

    def _on_interrupt(self, number: int) -> None:
        name = signal_name(number)
        again = "ends at once" if self._job.is_stopping else f"ends on {name}; a second one ends it at once"
        self._say(f"the job {again}")
        self._job.interrupt(number, self._options.grace)

    def _after_writes(self) -> None:
        """Let the instances write as much more as has been dealt with."""
        self._screen.after_writes()
        for done in self._files.written() if self._files else ():
            done()
        for rank, count in self._credits.items():
            self._tell(rank, messages.Credit(count))
        self._credits.clear()
        if self._screen.is_broken and not self._job.is_stopping:
            self._job.interrupt(signal.SIGPIPE, 0.5)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _on_mpirun_text(self, pipe: OutputPipe) -> None:
        data = pipe.read()
        if data:
            self._mpirun_text.append(data)
        elif data is not None:
            self._selector.unregister(pipe)
            pipe.close()

    def _on_mpirun_end(self, status: int) -> None:
        shown = status if status >= 0 else 128 - status
        self._log.info(f"mpirun (PID {self._mpirun}) terminated with exit code {shown}")
        self._mpirun_status = status
        settle = _SETTLE if status >= 0 and not self._job.all_gone else 0.0
        self._alarms.set(settle, lambda: self._job.mpirun_ended(self._mpirun, status))

    def _watch_teardown(self) -> None:
        """Once the job is told to stop, or all instances are gone, the rest has a limited time to end."""
        order = self._job.order
        if order is not None and order is not self._order:
            self._order = order
            grace = order.grace if self._job.has_started else 0.0
            teardown = _TEARDOWN_ELSEWHERE if self._plan.remote_hosts else _TEARDOWN
            teardown = teardown if self._channels else _TEARDOWN_OF_MPIRUN
            self._alarms.set(grace + teardown, lambda: self._kill_all() if self._order is order else None)
        if self._job.all_gone and not self._all_gone:
            self._all_gone = True
            self._alarms.set(_MPIRUN_TIMEOUT if order is None else _STOPPED_MPIRUN_TIMEOUT, self._kill_all)

    def _kill_all(self) -> None:
        self._killed = True
        self._job.given_up(self._mpirun)
        processes.end_descendants(timeout=0.5)

    @property
    def _finished(self) -> bool:
        return self._killed or (self._mpirun_status is not None and self._job.all_gone)

    def _finish(self) -> int:
        processes.end_descendants(timeout=0.5)
        if self._mpirun_status is not None:
            self._job.mpirun_ended(self._mpirun, self._mpirun_status)
        code = self._job.exit_code
        if code or self._killed:
            for path in sweep(since=self._since):
                self._log.debug(f"Removed {path}")
        for rank in range(len(self._plan.instances)):
            self._finish_output(rank)
        self._screen.draw(b"")
        self._explain()
        self._close()
        return code

    def _close(self) -> None:
        """Give up what another run would open again."""
        if self._files:
            self._files.close()
            if self._files.error:
                self._say(f"--log-dir {self._files.folder} is incomplete: {self._files.error}")
        for channel in self._channels.values():
            channel.close()
        self._reception.close()
        self._selector.close()

    @property
    def may_restart(self) -> bool:
        """Did the job fail in a way that need not come again?"""
        return self._job.may_restart

    def _explain(self) -> None:
        """Say why the job failed, last, where people look."""
        job, failure = self._job, self._job.failure
        if job.user_signal:
            return
        if job.why or (failure and failure.lost):
            self._say(job.why or str(failure))
            self._quote("mpirun wrote last", b"".join(self._mpirun_text).split(b"\n"))
        elif failure:
            self._explain_failure(failure)

    def _explain_failure(self, failure: End) -> None:
        rank = failure.instance.index
        raised = find_uncaught(self._output.kept(rank)) if failure.exit_code == 1 else None
        self._say(str(failure) + (": " if raised else ""), str(raised or ""))
        what = f"instance {rank} wrote last to stderr"
        if self._files:
            what += f" (all of it: {self._files.path(rank, STDERR)})"
        self._quote(what, self._output.last_lines(rank))

    def _say(self, text: str, emphasised: str = "") -> None:
        loud = emphasised.encode(errors="surrogateescape")
        if loud and self._screen.has_color:
            loud = _BOLD_RED + loud + _PLAIN
        self._screen.stderr(f"poprun-py: {text}".encode(errors="surrogateescape") + loud + b"\n")

    def _quote(self, what: str, lines: Sequence[bytes]) -> None:
        lines = [line for line in lines if line.strip()][-LAST_LINES:]
        if lines:
            self._screen.stderr(f"poprun-py: {what}:\n".encode(errors="surrogateescape"))
            self._screen.stderr(b"".join(b"    " + line + b"\n" for line in lines))

    # -- the view ---------------------------------------------------------------------------------------------------

    @property
    def _watch_interval(self) -> float:
        """Seconds between two messages of an instance on what it takes; many instances do it less often."""
        if not self._screen.has_pictures and self._options.progress != "on":
            return 0.0
        return max(1.0, len(self._plan.instances) / 16)

    def _draw(self) -> None:
        columns, lines = os.get_terminal_size(self._screen.terminals[-1])
        self._screen.draw(
            self._rows().picture(time.monotonic(), columns=columns, lines=lines, color=self._screen.has_color)
        )
        self._alarms.set(_PICTURES, self._draw)

    def _tell_progress(self) -> None:
        for line in self._rows().plain(time.monotonic()):
            self._screen.stderr(line.encode(errors="surrogateescape") + b"\n")
        self._alarms.set(_PLAIN_LINES, self._tell_progress)

    def _rows(self) -> View:
        for row in self._view.rows:
            row.pid, row.state = self._job.pid(row.index), self._job.state(row.index)
        return self._view
