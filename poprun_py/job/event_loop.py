"""Event loop: one run of a job: starts mpirun, serves the supervisors, and tears everything down."""

from __future__ import annotations

import math
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Iterable

from popdist_py import trace
from popdist_py.environment import EXECUTABLE_CACHE_PATH
from popdist_py.trace import Category, Recorder, Span
from poprun_py.errors import ChannelError
from poprun_py.job.deadlines import StartupMonitor, Teardown
from poprun_py.job.failure import signal_name
from poprun_py.job.failure_report import Console, explain
from poprun_py.job.job_state import JobState
from poprun_py.job.mpirun import channel_addresses, start_mpirun
from poprun_py.job.output_delivery import OutputDelivery
from poprun_py.job.progress_display import ProgressDisplay
from poprun_py.job.stdin import StdinReader
from poprun_py.linux import processes
from poprun_py.linux.event_sources import SignalPipe, Timers
from poprun_py.linux.job_record import JobRecord
from poprun_py.linux.limits import process_shortage
from poprun_py.linux.loopback_only import ignore_other_hosts
from poprun_py.linux.mpi_files import MpiFiles
from poprun_py.linux.pipes import OutputPipe
from poprun_py.numa.topology import format_cpu_list
from poprun_py.options.option_table import LaunchOptions
from poprun_py.output.log import Log
from poprun_py.output.screen import Screen
from poprun_py.output.stderr_end import abort_code, ranks_that_missed_a_peer
from poprun_py.plan.launch_plan import LaunchPlan
from poprun_py.wire import messages
from poprun_py.wire.channel import Channel
from poprun_py.wire.connections import Connections
from poprun_py.wire.listener import Listener

#: Seconds that an instance which made mpirun end the job (MPI_Abort) has to report its own exit code.
_SETTLE = 0.2

#: Seconds that an instance may wait in MPI_Finalize before the user is told.
_WAIT_NOTICE = 10.0

#: The last pieces of what mpirun writes that are kept.
_MOST_PIECES = 64

#: Seconds between two checks of whether the other hosts still answer.
_HOST_CHECK_INTERVAL = 1.0


class EventLoop:
    """The launcher's event loop, from the start of mpirun until no process of the job is left.

    ``restart`` is the number of earlier starts of the job, ``deadline`` (monotonic seconds) when it must have ended.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        options: LaunchOptions,
        *,
        signals: SignalPipe,
        screen: Screen,
        stdin: StdinReader,
        record: JobRecord | None = None,
        restart: int = 0,
        deadline: float = math.inf,
    ) -> None:
        self._plan = plan
        self._options = options
        self._since = time.time()
        self._signals = signals
        self._screen = screen
        self._deadline = deadline
        self._console = Console(screen)
        self._starter = os.path.basename(plan.command.argv[0])  # mpirun, mpiexec or srun
        self._log = Log(options.verbosity, screen.stderr)
        self._delivery = OutputDelivery(plan, options, screen, restart=restart, wake=signals.wake)
        self._timers = Timers()
        self._display = ProgressDisplay(plan, screen, self._timers, mode=options.progress, state=self._state)
        self._selector = selectors.PollSelector()  # unlike epoll it takes files, which stdin may be
        self._connections = Connections(self._selector, on_message=self._on_message, on_loss=self._on_loss)
        self._listener = Listener(
            self._selector,
            self._timers,
            accept=self._accept,
            log=self._log.debug,
            addresses=channel_addresses(plan),
        )
        self._input = stdin
        self._record = record
        self._files = MpiFiles(lambda: processes.descendants(os.getpid())) if record else None
        self.job = JobState(
            plan,
            since=self._since,
            has_input=stdin.is_open,
            send=self._connections.send,
            restart=restart,
            folder=record.folder if record else "",
            cache=record.folder if record and not _names_cache(options) else "",
            usage_interval=self._display.interval,
            starter=self._starter,
        )
        self._trace = JobTrace(len(plan.instances), restart)
        self._startup = StartupMonitor(plan, self.job, self._timers, self._starter, self._console.say)
        self._teardown = Teardown(plan, self.job, self._timers, self._connections)
        self._mpirun = 0
        self._mpirun_status: int | None = None
        self._mpirun_text: deque[bytes] = deque(maxlen=_MOST_PIECES)
        self._mpirun_pipes: list[OutputPipe] = []
        self._has_closed_ports = False
        self._has_reported_wait = False
        self._has_listed = False  # the MPI's files, before its processes end

    def run(self) -> int:
        self._start()
        self._screen.start()  # threads, so not before mpirun is forked
        self._delivery.start()
        while not self._finished:
            for key, _ in self._selector.select(self._timers.until_next()):
                if key.fd in self._selector.get_map():  # an earlier event of this round may have closed it
                    key.data()
            self._timers.run_due()
            self._after_writes()
            if self.job.is_stopping and not self._has_listed:
                self._has_listed = True
                self._list_files()
            self._teardown.update()
        return self._finish()

    # -- the start --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._log.info("Running command: " + " ".join(f"'{word}'" for word in self._plan.command.argv))
        address, key = self._listener.address, self._listener.key
        self._mpirun, self._mpirun_pipes = start_mpirun(self._plan, address=address, key=key, record=self._record)
        self._log.info(f"Waiting for {self._starter} (PID {self._mpirun})")
        self._register_all()
        self._startup.begin(self._mpirun)
        self._teardown.begin(self._mpirun)
        if self._plan.remote_hosts:
            self._timers.call_later(_HOST_CHECK_INTERVAL, self._check_hosts)
        if self._deadline < math.inf:
            self._timers.call_later(max(0.001, self._deadline - time.monotonic()), self._on_timeout)
        self._display.start()

    def _register_all(self) -> None:
        read = selectors.EVENT_READ
        self._selector.register(self._signals, read, self._on_signals)
        if self._files and self._files.fileno() >= 0:
            self._selector.register(self._files, read, self._on_files)
        for pipe in self._mpirun_pipes:
            self._selector.register(pipe, read, lambda pipe=pipe: self._on_mpirun_text(pipe))

    def _on_files(self) -> None:
        if self._files and self._files.read():
            self._list_files()

    def _list_files(self) -> None:
        """List the files that the MPI has made for this job, while the processes live that use them."""
        if self._files and self._record:
            self._list(self._files.new_files())

    def _list(self, files: Iterable[str]) -> None:
        fault = self._record.add(files) if self._record else ""
        if fault:
            self._log.info(f"Files of {self._starter} are not listed, and may stay after the job: {fault}")

    def _on_timeout(self) -> None:
        waiting = f"; {self.job.waiting}" if self.job.waiting else ""
        why = f"the job did not end within {self._options.timeout:g} s (--timeout){waiting}"
        self.job.fail(why, 124, final=True)

    # -- the supervisors --------------------------------------------------------------------------------------------

    def _accept(self, hello: messages.Hello, channel: Channel) -> bool:
        if hello.rank in self._connections:
            return False
        self._startup.on_hello(hello)
        self._close_ports()
        if not self.job.expects(hello.rank):
            return False
        self._connections.connect(hello.rank, channel)
        self.job.hello(hello.rank, hello.pid)
        self._log.debug(f"Supervisor {hello.pid} on {hello.host} is ready for instance {hello.rank}")
        if hello.rank == 0:
            self._watch_stdin()
        return True

    def _close_ports(self) -> None:
        """Close mpirun's ports to other hosts where they have no part in the job; they are open by now."""
        if self._plan.closes_ports and not self._has_closed_ports:
            self._has_closed_ports = True
            for port in ignore_other_hosts(self._mpirun):
                self._log.debug(f"Port {port} of {self._starter} is closed to other hosts")

    def _on_message(self, rank: int, message: messages.Message) -> None:
        if isinstance(message, messages.Started | messages.Exited | messages.Orphaned | messages.Leaving):
            self.job.heard_clock(rank, message.at)
        match message:
            case messages.Output(stream, data) if stream in messages.STREAMS:
                self._delivery.write(rank, stream, data)
            case messages.Started(pid, cpus, memory, warning, _):
                where = f"CPUs {format_cpu_list(cpus)}, memory nodes {format_cpu_list(memory)}"
                self._log.debug(f"Instance {rank} has pid {pid}; {where}")
                if warning:
                    self._log.info(f"Instance {rank}: {warning}")
                self.job.started(rank, pid)
                self._trace.started(rank, pid)
                self._display.rows[rank].nodes = format_cpu_list(memory)
            case messages.NotStarted(reason):
                self.job.not_started(rank, reason)
            case messages.Exited():
                self.job.exited(rank, message)
                self._trace.ended(rank, self.job.state(rank))
            case messages.Gone():
                self._delivery.finish(rank)
                self.job.gone(rank)
            case messages.Usage():
                self._display.rows[rank].update_usage(message, time.monotonic())
            case messages.Report():
                self._display.rows[rank].update_report(message, time.monotonic())
            case messages.Hung():
                self.job.hung(rank)
            case messages.Lost() | messages.Leaving():
                self.job.noticed(rank, message)
            case messages.Waiting():
                self.job.is_in_finalize(rank)
                self._timers.call_later(_WAIT_NOTICE, self._report_wait)
            case messages.Orphaned():
                self.job.orphaned(rank, message)
            case messages.InputTaken():
                self._watch_stdin()
            case _:
                raise ChannelError(f"an unexpected {type(message).__name__} message")

    def _on_loss(self, rank: int, why: str) -> None:
        self._log.debug(f"The channel of instance {rank} is closed: its supervisor {why}")
        self.job.lost(rank, why)
        self._trace.ended(rank, self.job.state(rank))

    def _check_hosts(self) -> None:
        self._connections.drop_silent()
        self._timers.call_later(_HOST_CHECK_INTERVAL, self._check_hosts)

    def _report_wait(self) -> None:
        """Tell the user once which instances wait for the others; exit codes are unknown until the wait is over."""
        if self.job.waiting and not self.job.is_stopping and not self._has_reported_wait:
            self._has_reported_wait = True
            self._console.say(f"{self.job.waiting}; whether it failed is not known before they end (see --timeout)")

    def _state(self, rank: int) -> tuple[int, str]:
        return self.job.pid(rank), self.job.state(rank)

    # -- the user ---------------------------------------------------------------------------------------------------

    def _watch_stdin(self) -> None:
        if self._input.is_open and self._input.fileno() not in self._selector.get_map():
            self._selector.register(self._input, selectors.EVENT_READ, self._on_input)

    def _on_input(self) -> None:
        self._selector.unregister(self._input)
        self._connections.send(0, messages.Input(self._input.read()))

    def _on_signals(self) -> None:
        for number in self._signals.read():
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._on_interrupt(number)
            elif number in (signal.SIGUSR1, signal.SIGUSR2):
                self.job.forward(number)
        dead, _ = processes.reap()
        for pid, status in dead:
            if pid == self._mpirun:
                self._on_mpirun_end(status)

    def _on_interrupt(self, number: int) -> None:
        name = signal_name(number)
        again = "ends at once" if self.job.is_stopping else f"ends on {name}; a second one ends it at once"
        self._console.say(f"the job {again}")
        self.job.interrupt(number, self._options.grace)

    def _after_writes(self) -> None:
        """Grant the instances credit for the output that has been delivered."""
        self._screen.after_writes()
        for rank, count in self._delivery.delivered():
            self._connections.send(rank, messages.Credit(count))
        if self._screen.is_broken and not self.job.is_stopping:
            if self._screen.has_hung_up:
                self.job.interrupt(signal.SIGHUP, self._options.grace)
            elif fault := self._screen.fault:
                self.job.fail(f"the output cannot be written: {fault}", os.EX_IOERR, final=True)
            else:
                self.job.interrupt(signal.SIGPIPE, 0.5)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _on_mpirun_text(self, pipe: OutputPipe) -> bool:
        """Read a piece of what mpirun writes; return whether there was any."""
        data = pipe.read()
        if data:
            self._mpirun_text.append(data)
        elif data is not None:
            self._selector.unregister(pipe)
            pipe.close()
        return bool(data)

    def _read_rest(self, pipe: OutputPipe) -> None:
        """Read what mpirun wrote last; others may hold its pipe open, and go on writing."""
        for _ in range(_MOST_PIECES):
            if not pipe.is_open or not self._on_mpirun_text(pipe):
                return

    def _on_mpirun_end(self, status: int) -> None:
        shown = status if status >= 0 else 128 - status
        self._log.info(f"{self._starter} (PID {self._mpirun}) terminated with exit code {shown}")
        self._mpirun_status = status
        self._startup.end()
        settle = _SETTLE if status >= 0 and not self.job.all_gone else 0.0
        self._timers.call_later(settle, lambda: self.job.mpirun_ended(self._mpirun, status))

    @property
    def _finished(self) -> bool:
        return self._teardown.has_killed or (self._mpirun_status is not None and self.job.all_gone)

    def _finish(self) -> int:
        processes.end_descendants(timeout=0.5)
        if self._mpirun_status is not None:
            self.job.mpirun_ended(self._mpirun, self._mpirun_status)
        for pipe in self._mpirun_pipes:
            self._read_rest(pipe)
        self.job.missed_peers(ranks_that_missed_a_peer(b"".join(self._mpirun_text)))
        for rank in range(len(self._plan.instances)):
            if (aborted := abort_code(self._delivery.stderr_end(rank), rank)) is not None:
                self.job.aborted(rank, aborted)
        code = self.job.exit_code
        if self._record and (code or self._teardown.has_killed):
            self._list(self._files.abandoned() if self._files else ())
            for path in self._record.remove_listed():
                self._log.debug(f"Removed {path}")
        for rank in range(len(self._plan.instances)):
            self._delivery.finish(rank)
        self._screen.draw(b"")
        explain(
            self.job,
            self._delivery,
            self._console,
            starter=self._starter,
            starter_output=self._mpirun_text,
            shortage=lambda: process_shortage(self._plan.instances_per_host),
        )
        self._close()
        return code

    def _close(self) -> None:
        """Close the resources that the next run of the job opens again."""
        if error := self._delivery.close():
            self._console.say(error)
        self._connections.close()
        self._listener.close()
        if self._files:
            self._files.close()
        self._selector.close()


def _names_cache(options: LaunchOptions) -> bool:
    return bool(options.executable_cache_path or os.environ.get(EXECUTABLE_CACHE_PATH))


class JobTrace:
    """Records one run of a job; without a recorder nothing."""

    def __init__(self, count: int, restart: int) -> None:
        self._recorder = trace.recorder()
        self._open: dict[int, Span] = {}
        if self._recorder:
            self._tracks = [self._recorder.track(f"instance {rank}") for rank in range(count)]
            name = "restart" if restart else "launch"
            self._recorder.instant(self._recorder.name(name, Category.LAUNCH, restart=restart))
            for rank in range(count):
                self._enter(rank, self._recorder, "start of the instance")

    def started(self, rank: int, pid: int) -> None:
        """The program of an instance runs."""
        if self._recorder:
            self._leave(rank)
            self._enter(rank, self._recorder, "program", pid=pid)

    def ended(self, rank: int, how: str) -> None:
        """The program of an instance has ended."""
        if self._recorder and rank in self._open:
            self._leave(rank)
            end = self._recorder.name("end of the instance", Category.LAUNCH, rank=rank, how=how)
            self._recorder.instant(end, track=self._tracks[rank])

    def _enter(self, rank: int, recorder: Recorder, name: str, **args: int) -> None:
        span = recorder.span(recorder.name(name, Category.LAUNCH, rank=rank, **args), track=self._tracks[rank])
        span.__enter__()
        self._open[rank] = span

    def _leave(self, rank: int) -> None:
        if span := self._open.pop(rank, None):
            span.__exit__(None, None, None)
