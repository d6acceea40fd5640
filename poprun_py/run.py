"""Run: carries a plan out. Starts mpirun, listens to the supervisors, and tears everything down."""

from __future__ import annotations

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
from poprun_py.failure import signal_name
from poprun_py.hang import HINT, HINT_AFTER, has_raised
from poprun_py.input import Input
from poprun_py.job import Job
from poprun_py.log import Log
from poprun_py.numa import listed
from poprun_py.options import LaunchOptions
from poprun_py.output import STDERR, STDOUT, Output
from poprun_py.pipes import OutputPipe
from poprun_py.plan import LaunchPlan
from poprun_py.reception import Reception
from poprun_py.sink import Sink
from poprun_py.start import channel_addresses, open_standard_streams, start_mpirun
from poprun_py.sweep import sweep
from poprun_py.wakeup import Wakeup

__all__ = ["run"]

#: Seconds until every supervisor must have reported, plus so much for each.
START_TIMEOUT, START_TIMEOUT_PER_INSTANCE = 30.0, 1.0

#: Seconds from the end of the grace until everything is killed, and for mpirun to end after its processes.
_TEARDOWN, _MPIRUN_TIMEOUT = 0.9, 5.0

#: Seconds in which an instance that made mpirun end the job (MPI_Abort) may report its own exit code.
_SETTLE = 0.2

#: Seconds between two looks at whether the other hosts still answer.
_LOOK_EVERY = 1.0

_STDERR_LINES = 20


def run(plan: LaunchPlan, options: LaunchOptions) -> int:
    """Start the job, wait for its end, leave nothing behind; return its exit code."""
    open_standard_streams()
    return _Run(plan, options).run()


class _Run:
    """The event loop of the launcher."""

    def __init__(self, plan: LaunchPlan, options: LaunchOptions) -> None:
        self._plan = plan
        self._options = options
        self._since = time.time()
        self._wakeup = Wakeup(
            (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
        )
        self._stdout, self._stderr = Sink(1, self._wakeup.nudge), Sink(2, self._wakeup.nudge)
        self._log = Log(options.verbosity, self._stderr.put)
        self._output = Output(
            len(plan.instances),
            only=options.only_output_from_instance,
            stdout=self._stdout.put,
            stderr=self._stderr.put,
            live=[stream for stream in (STDOUT, STDERR) if os.isatty(stream)],
        )
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
        self._input = Input()
        self._job = Job(plan, since=self._since, has_input=self._input.is_open, tell=self._tell)
        self._mpirun = 0
        self._mpirun_status: int | None = None
        self._mpirun_text: deque[bytes] = deque(maxlen=64)
        self._killed = False
        self._all_gone = False
        self._order: messages.Stop | None = None  # the last one that has a deadline

    def run(self) -> int:
        processes.adopt_orphans()
        if self._options.print_topology or self._options.verbosity > 1:
            self._stdout.put(self._plan.topology().encode())
        self._start()
        self._stdout.start()  # threads, so not before mpirun is forked
        self._stderr.start()
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
        patience = START_TIMEOUT + START_TIMEOUT_PER_INSTANCE * len(self._plan.instances)
        self._alarms.set(patience, lambda: self._on_start_timeout(patience))
        if self._options.timeout is not None:
            self._alarms.set(self._options.timeout, self._on_timeout)

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
        self._job.fail(f"the job did not end within {self._options.timeout:g} s (--timeout)", 124)

    # -- the supervisors --------------------------------------------------------------------------------------------

    def _welcome(self, hello: messages.Hello, channel: Channel) -> bool:
        if hello.rank in self._channels:
            return False
        self._channels[hello.rank] = channel
        if not self._job.hello(hello.rank, hello.pid):
            del self._channels[hello.rank]
            return False
        self._log.debug(f"Supervisor {hello.pid} on {hello.host} is ready for instance {hello.rank}")
        self._selector.register(channel, self._interest(channel), lambda: self._on_messages(hello.rank))
        if hello.rank == 0:
            self._await_input()
        return True

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
                count = len(data)
                self._output.write(rank, stream, data, lambda: self._credits.update({rank: count}))
                if stream == STDERR and has_raised(self._output.kept(rank)):
                    self._watch_for_hang(rank, self._output.kept(rank))
            case messages.Started(pid, cpus, memory, warning):
                where = f"CPUs {listed(cpus)}, memory nodes {listed(memory)}"
                self._log.debug(f"Instance {rank} has pid {pid}; {where}")
                if warning:
                    self._log.info(f"Instance {rank}: {warning}")
                self._job.started(rank, pid)
            case messages.NotStarted(reason):
                self._job.not_started(rank, reason)
            case messages.Exited():
                self._job.exited(rank, message)
            case messages.Gone():
                self._output.finish(rank)
                self._job.gone(rank)
            case messages.InputTaken():
                self._await_input()
            case _:
                raise ChannelError(f"an unexpected {type(message).__name__} message")

    def _watch_for_hang(self, rank: int, text: bytes) -> None:
        def look_again() -> None:
            if self._job.is_running(rank) and self._output.kept(rank) == text:
                self._say(f"instance {rank} {HINT}", [])

        self._alarms.set(HINT_AFTER, look_again)

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
        self._say(f"the job {again}", [])
        self._job.interrupt(number, self._options.grace)

    def _after_writes(self) -> None:
        """Let the instances write as much more as has been dealt with."""
        for sink in (self._stdout, self._stderr):
            for done in sink.written():
                done()
        for rank, count in self._credits.items():
            self._tell(rank, messages.Credit(count))
        self._credits.clear()
        for sink in (self._stdout, self._stderr):
            if sink.is_broken and not self._job.is_stopping:
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
            self._alarms.set(order.grace + _TEARDOWN, lambda: self._kill_all() if self._order is order else None)
        elif self._job.all_gone and not self._all_gone:
            self._all_gone = True
            self._alarms.set(_MPIRUN_TIMEOUT, self._kill_all)

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
        self._explain()
        self._stdout.close()
        self._stderr.close()
        return code

    def _explain(self) -> None:
        """Say why the job failed, last, where people look."""
        job = self._job
        for rank in range(len(self._plan.instances)):
            self._output.finish(rank)
        failure = job.failure
        if job.user_signal:
            return
        if job.why:
            self._say(job.why, b"".join(self._mpirun_text).split(b"\n"))
        elif failure and failure.lost:
            self._say(str(failure), b"".join(self._mpirun_text).split(b"\n"))
        elif failure:
            self._say(str(failure), self._output.last_lines(failure.instance.index, _STDERR_LINES))

    def _say(self, text: str, details: Sequence[bytes]) -> None:
        self._stderr.put(f"poprun-py: {text}\n".encode(errors="surrogateescape"))
        for line in [line for line in details if line.strip()][-_STDERR_LINES:]:
            self._stderr.put(b"    " + line + b"\n")
