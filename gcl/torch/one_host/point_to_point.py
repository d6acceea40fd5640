"""Point to point: sends and receives between the ranks of a host, matched by source and tag in the order of sending.

A short message is copied into the segment of its source, which then continues. A long one is copied by the target
straight out of the memory of the source, which waits for that. Waiting ranks make progress on all messages; a thread
does so for messages that nobody waits for.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from itertools import chain
from threading import Event, RLock, Thread
from time import monotonic, sleep
from typing import NamedTuple

import numpy as np

from gcl.errors import ArgumentError, CollectiveTimeout, GclError, PeerLost
from gcl.kernels.copies import copy_bytes
from gcl.torch.one_host.mailbox import Letter, Mailbox
from gcl.torch.work import GclWork
from gcl.transport.memory.process_vm import transfer
from gcl.transport.memory.segment import array_at
from gcl.transport.paths.memory_path import MemoryPath

#: Messages of at least this many bytes are not copied into the segment.
_DIRECT_BYTES = 1 << 18
_NAP = 0.02
#: Seconds between checks whether the other ranks are alive.
_LOOK = 0.1
#: Seconds before the thread makes progress, in which the program may wait by itself.
_GRACE = 5e-4


class _Outcome(IntEnum):
    """The value to which the target of a message sets the word of its source."""

    ARRIVED = 1
    REFUSED = 2


class Receive(NamedTuple):
    """A receive without a message yet."""

    source: int | None
    tag: int
    out: np.ndarray
    work: GclWork
    then: Callable[[], None]


class _Send(NamedTuple):
    target: int
    letter: Letter
    word: np.ndarray  # what the target sets
    memory: object  # keeps the bytes alive while the target may read them
    work: GclWork
    copied: bool  # the bytes were copied: the program may change them as soon as the message is announced


class PointToPoint:
    """The sends and receives of this rank over ``path``; ``names`` are those of the ranks."""

    def __init__(self, path: MemoryPath, names: tuple[str, ...]) -> None:
        self._path, self._names = path, names
        self._box = Mailbox(path)
        self._arenas = [memory.ctypes.data for memory in path.memories]
        self._arrived: list[tuple[int, Letter]] = []
        self._receives: list[Receive] = []
        #: for each target, the messages for which its ring has had no room yet
        self._backlog: list[deque[_Send]] = [deque() for _ in names]
        self._sends: list[_Send] = []
        self._lock, self._wanted = RLock(), Event()
        self._waiting = 0
        self._thread: Thread | None = None
        self._vectors = np.empty(4, np.int64)
        self._process = os.getpid()

    def send(self, data: np.ndarray, target: int, tag: int) -> GclWork:
        """Start sending the bytes ``data``."""
        self._path.check()
        self._check_peer(target)
        with self._lock:
            word = self._path.empty((1, 1), np.dtype(np.int64))
            direct = data.nbytes >= _DIRECT_BYTES and self._path.uses_process_vm
            near = data if direct else self._path.near(data)
            if near is not data and data.nbytes:
                copy_bytes(near.ctypes.data, data.__array_interface__["data"][0], data.nbytes)
            offset = self._path.segment.offset_of(near)
            eager = near is not data and data.nbytes < _DIRECT_BYTES
            address = int(data.__array_interface__["data"][0])
            word_offset = self._path.segment.offset_of(word)
            assert word_offset is not None
            letter = Letter(tag, data.nbytes, -1 if offset is None else offset, address, self._process, word_offset)
            work = GclWork([], what=f"send to {self._names[target]} with tag {tag}")
            work.waits_with(lambda seconds: self._wait(work, seconds, target), settles=False)
            self._backlog[target].append(_Send(target, letter, word, near, work, eager))
            self.progress()
            is_announced = not self._backlog[target]
        if not is_announced:
            self._want_thread()
        return work

    def receive(self, out: np.ndarray, source: int | None, tag: int, then: Callable[[], None]) -> GclWork:
        """Start receiving into the bytes ``out``, from any rank if ``source`` is None; at the end call ``then``."""
        self._path.check()
        if source is not None:
            self._check_peer(source)
        name = "any rank" if source is None else self._names[source]
        work = GclWork([], what=f"receive from {name} with tag {tag}")
        work.waits_with(lambda seconds: self._wait(work, seconds, source))
        with self._lock:
            self._receives.append(Receive(source, tag, out, work, then))
            self._match()
            self.progress()
        if not work.is_settled:
            self._want_thread()
        return work

    def withdraw(self, work: GclWork) -> None:
        """Cancel a receive without a message yet."""
        with self._lock:
            self._receives = [receive for receive in self._receives if receive.work is not work]

    def progress(self) -> bool:
        """Make progress without waiting; return whether there was any."""
        with self._lock:
            done = False
            for sends in self._backlog:
                while sends and self._box.write(sends[0].target, sends[0].letter):
                    send = sends.popleft()
                    if send.copied:
                        send.work.settle()
                    self._sends.append(send)
                    done = True
            news = list(self._box.read())
            if news:
                self._arrived += news
                done = self._match() or done
            return self._complete_sends() or done

    def close(self) -> None:
        """End the thread; pending sends and receives fail."""
        with self._lock:
            self._thread = None
            self._wanted.set()
            gone = PeerLost("the process group was destroyed while the message was under way")
            for receive in self._receives:
                receive.work.settle(gone)
            for send in [*self._sends, *chain(*self._backlog)]:
                send.work.settle(gone)
            self._receives.clear()

    def _complete_sends(self) -> bool:
        outcomes = [int(send.word[0, 0]) for send in self._sends]  # read once: targets set them meanwhile
        if not any(outcomes):
            return False
        pairs = list(zip(self._sends, outcomes, strict=True))
        self._sends = [send for send, outcome in pairs if not outcome]
        for send, outcome in pairs:
            if outcome:
                refused = ArgumentError(f"{self._names[send.target]} receives another number of bytes; see its error")
                send.work.settle(refused if outcome == _Outcome.REFUSED else None)
        return True

    def _match(self) -> bool:
        matched = False
        for receive in list(self._receives):
            match = next(
                (
                    index
                    for index, (source, letter) in enumerate(self._arrived)
                    if receive.source in (None, source) and letter.tag == receive.tag
                ),
                None,
            )
            if match is not None:
                self._receives.remove(receive)
                self._take(receive, *self._arrived.pop(match))
                matched = True
        return matched

    def _take(self, receive: Receive, source: int, letter: Letter) -> None:
        """Copy the bytes of a message, and notify its source."""
        error: GclError | None = None
        here = int(receive.out.__array_interface__["data"][0])
        if letter.nbytes != receive.out.nbytes:
            error = ArgumentError(
                f"{self._names[source]} sends {letter.nbytes} bytes with tag {letter.tag}, but the tensor has "
                f"{receive.out.nbytes}; pass tensors of equal size and dtype on both sides"
            )
        elif letter.nbytes and letter.offset >= 0:
            copy_bytes(here, self._arenas[source] + letter.offset, letter.nbytes)
        elif letter.nbytes:
            copied = transfer(letter.process, here, letter.address, letter.nbytes, False, self._vectors)
            if copied != letter.nbytes:
                who = self._names[source]
                error = PeerLost(f"the memory of {who} could not be reached: it has ended", peer=who)
        word = array_at(self._arenas[source] + letter.word, (1,), np.dtype(np.int64))
        word[0] = _Outcome.ARRIVED if error is None else _Outcome.REFUSED
        self._box.ring(source)
        if error is None:
            receive.then()
        receive.work.settle(error, source)

    def _wait(self, work: GclWork, seconds: float | None, peer: int | None) -> bool:
        """Move messages until ``work`` is settled; False after ``seconds`` (None: settle it with a time-out)."""
        if seconds == 0:
            self.progress()
            return work.is_settled
        limit = self._path.timeout if seconds is None else seconds
        deadline, look = monotonic() + limit, monotonic() + _LOOK
        self._waiting += 1
        try:
            while not work.is_settled:
                heard = self._box.heard()
                if self.progress():
                    continue
                now = monotonic()
                if now >= look:
                    self._look(work, peer)
                    look = now + _LOOK
                if now >= deadline and not work.is_settled:
                    if seconds is not None:
                        return False
                    work.settle(CollectiveTimeout(f"{work.what} waited {limit:g} s; check what that rank is doing"))
                self._box.doze(heard, _NAP)
        finally:
            self._waiting -= 1
        return True

    def _look(self, work: GclWork, peer: int | None) -> None:
        """Fail ``work`` if its peer is gone, or for any source if all peers are gone."""
        others = [rank for rank in range(self._path.ranks) if rank != self._path.rank] if peer is None else [peer]
        gone = [self._path.departed(work.what, rank) for rank in others]
        if gone and all(gone):
            self.progress()  # messages that it sent before it left
            if not work.is_settled:
                work.settle(gone[0])

    def _want_thread(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._serve, name="gcl-messages", daemon=True)
                self._thread.start()
        self._wanted.set()

    def _serve(self) -> None:
        me = self._thread
        while self._thread is me:
            self._wanted.wait()
            sleep(_GRACE)
            heard = self._box.heard()
            if self._waiting:
                sleep(_NAP)
                continue
            self.progress()
            if not self._is_busy():
                self._wanted.clear()
                if self._is_busy():
                    self._wanted.set()
            else:
                self._box.doze(heard, _NAP)

    def _is_busy(self) -> bool:
        """Whether there are messages that nobody may wait for, and that need this rank to make progress."""
        return bool(self._receives) or any(self._backlog)

    def _check_peer(self, rank: int) -> None:
        if not 0 <= rank < self._path.ranks or rank == self._path.rank:
            raise ArgumentError(f"rank {rank} is not another rank of the group; use 0 to {self._path.ranks - 1}")
