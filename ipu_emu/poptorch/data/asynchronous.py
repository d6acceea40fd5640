"""AsynchronousDataAccessor: a separate process that loads a data set into a ring of shared buffers."""

from __future__ import annotations

import atexit
import multiprocessing
import queue
import weakref
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing

from ipu_emu.poptorch.data.watched_workers import way_of_ending
from ipu_emu.poptorch.enums import SharingStrategy
from ipu_emu.poptorch.errors import Error, refusal
from ipu_emu.session.options.without_effect import without_effect

_METHODS = {
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
}
_END, _FAILED = "end", "failed"
#: Seconds between checks whether the consumer process is alive.
_PATIENCE = 5.0


def _leaves(item: Any) -> list[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        return [item]
    if isinstance(item, Mapping):
        return [item[key] for key in item]
    return list(item)


def _shape_of(item: Any) -> Any:
    """The structure of an item, for rebuilding it: tuples and lists both become lists."""
    if isinstance(item, torch.Tensor):
        return None
    return list(item) if isinstance(item, Mapping) else len(item)


def _rebuilt(shape: Any, tensors: list[torch.Tensor]) -> Any:
    if shape is None:
        return tensors[0]
    return dict(zip(shape, tensors, strict=True)) if isinstance(shape, list) else list(tensors)


def _batches(dataset: Any, rebatched: int | None, drop_last: bool) -> Iterator[Any]:
    """The items of one pass; with ``rebatched``, joined to that many rows each, the last perhaps to fewer."""
    if rebatched is None:
        yield from dataset
        return
    waiting: list[list[torch.Tensor]] = []
    shape, count = None, 0
    for item in dataset:
        shape = _shape_of(item)
        waiting.append(_leaves(item))
        count += waiting[-1][0].shape[0]
        while count >= rebatched:
            joined = [torch.cat(parts) for parts in zip(*waiting, strict=True)]
            yield _rebuilt(shape, [tensor[:rebatched] for tensor in joined])
            waiting, count = [[tensor[rebatched:] for tensor in joined]], count - rebatched
    if count and not drop_last:
        yield _rebuilt(shape, [torch.cat(parts) for parts in zip(*waiting, strict=True)])


def _next(channel: Any) -> Any:
    """The next message; None if the sending process has ended."""
    sender = multiprocessing.parent_process()
    while True:
        try:
            return channel.get(timeout=_PATIENCE)
        except queue.Empty:
            if sender is not None and not sender.is_alive():
                return None


def _fill(
    dataset: Any,
    rebatched: tuple[int | None, bool],
    forever: bool,
    channels: Any,
    begin: bool,
    start_method: str,
) -> None:
    """Load the data set pass by pass; a message on ``commands`` starts the next one.

    Workers of the data set start by ``start_method``, that of the program: in the way of this process, each of them
    may import the program again.
    """
    multiprocessing.set_start_method(start_method, force=True)
    free, ready, commands = channels
    slots: dict[int, list[torch.Tensor]] = {}
    try:
        preloaded = begin
        while True:
            if not preloaded and _next(commands) is None:
                return
            preloaded, number = False, 0
            for item in _batches(dataset, *rebatched):
                tensors = [tensor.contiguous() for tensor in _leaves(item)]
                slot = _next(free)
                if slot is None:
                    return
                number += 1
                held = slots.get(slot)
                if held is None or [tensor.shape for tensor in held] != [tensor.shape for tensor in tensors]:
                    slots[slot] = [tensor.clone().share_memory_() for tensor in tensors]
                    ready.put((slot, _shape_of(item), slots[slot]))
                    continue
                for mine, other in zip(held, tensors, strict=True):
                    mine.copy_(other)
                ready.put((slot, _shape_of(item), None))
            if not number:
                ready.put((_FAILED, "the data set is empty", None))
                return
            ready.put((_END, None, None))
            if not forever:
                continue
    except BaseException as error:
        text = error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}"
        ready.put((_FAILED, text, None))


def _generator(device: str, state: bytes) -> torch.Generator:
    """A generator in ``state``."""
    generator = torch.Generator(device)
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


def _reduced(generator: torch.Generator) -> Any:
    """Pickle a generator by its state as bytes.

    PyTorch would send the state as a tensor in a file, which is closed before the other process can open it.
    """
    return _generator, (str(generator.device), generator.get_state().numpy().tobytes())


ForkingPickler.register(torch.Generator, _reduced)


class AsynchronousDataAccessor:
    """Iterates over a data set that one worker process loads ahead.

    The tensors of an item are overwritten after the next item is requested: clone those that are kept.
    """

    @without_effect("miss_sleep_time_in_ms")
    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: int | None = None,
        drop_last: bool = True,
    ) -> None:
        if getattr(dataset, "_accessor", None) is not None:
            raise refusal(
                "The DataLoader already uses an AsynchronousDataAccessor internally. Either use that one, or use "
                "DataLoaderMode.Sync"
            )
        self._dataset = dataset
        context: Any = torch.multiprocessing.get_context(_METHODS[SharingStrategy(sharing_strategy)])
        self._free, self._ready, self._commands = context.Queue(), context.Queue(), context.Queue()
        for number in range(max(int(buffer_size), 2)):
            self._free.put(number)
        self._slots: dict[int, list[torch.Tensor]] = {}
        self._begun = bool(early_preload)
        self._used: int | None = None
        self._failure: str | None = None
        self._in_pass = self._begun
        channels = (self._free, self._ready, self._commands)
        method = multiprocessing.get_start_method()
        arguments = (dataset, (rebatched_size, drop_last), load_indefinitely, channels, self._begun, method)
        self._process = context.Process(target=_fill, args=arguments)  # not a daemon: daemons cannot have workers
        self._process.start()
        self._stop: Callable[[], Any] = weakref.finalize(self, _stop, self._process, channels)
        atexit.register(self._stop)

    def __len__(self) -> int:
        return len(self._dataset)

    def terminate(self) -> None:
        """End the worker process."""
        self._stop()

    def __iter__(self) -> Iterator[Any]:
        if self._in_pass and not self._begun:
            while self._take()[0] is not _END:  # a pass that was abandoned starts again
                pass
        if not self._begun:
            self._commands.put(True)
        self._begun, self._in_pass = False, True
        while True:
            kind, item = self._take()
            if kind is _END:
                return
            yield item

    def _take(self) -> tuple[Any, Any]:
        if self._failure is not None:
            raise refusal(self._failure)
        if self._used is not None:
            self._free.put(self._used)
            self._used = None
        slot, shape, tensors = self._message()
        if slot == _END:
            self._in_pass = False
            return _END, None
        if slot == _FAILED:
            when = "after it had started" if self._slots else "to start (Check above for details)"
            raise self._failed(f" {when}: {shape}")
        if tensors is not None:
            self._slots[slot] = tensors
        self._used = slot
        return None, _rebuilt(shape, self._slots[slot])

    def _message(self) -> Any:
        """The worker's next message; raise poptorch.Error if it has died, also while sending."""
        while True:
            try:
                return self._ready.get(timeout=1.0)
            except (queue.Empty, OSError, EOFError) as error:
                broken = not isinstance(error, queue.Empty)
                self._process.join(_PATIENCE if broken else 0)
                if not self._process.is_alive():
                    way = way_of_ending(self._process.exitcode or 0)
                    raise self._failed(f": process {self._process.pid} {way}") from None
                if broken:
                    raise

    def _failed(self, reason: str) -> Error:
        """Return the error of a worker that has failed, and keep it for later epochs."""
        self._failure = f"AsynchronousDataAccessor worker thread failed{reason}"
        return refusal(self._failure)


def _stop(process: multiprocessing.Process, channels: Any) -> None:
    free, _, commands = channels
    if process.is_alive():
        free.put(None)
        commands.put(None)
        process.join(0.5)
        if process.is_alive():
            process.terminate()
