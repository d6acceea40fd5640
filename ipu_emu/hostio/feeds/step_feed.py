"""Step feed: a feed, or functions of the user, as the step data of a session; and the check of their sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, FeedError, SessionError
from ipu_emu.graph import Tensor
from ipu_emu.hostio.data.data_modes import DataMode
from ipu_emu.hostio.feeds.array_feed import ArrayFeed, check_output_array, is_converted
from ipu_emu.hostio.feeds.feed import Feed
from ipu_emu.program.anchors import Anchor, Return
from ipu_emu.program.executable import Executable


def check_sizes(feed: ArrayFeed, executable: Executable, broadcast: frozenset[str]) -> None:
    """Raise SessionError for the first array that does not have the number of elements of a step.

    Only numbers of elements are compared, not shapes.
    """
    step = executable.step
    everything = step.batches * step.accumulation * step.replicas
    for id in feed.inputs:
        _check_input_known(id, executable)
    # The array of a weight may be given like that of an input: it is checked, but not read.
    weights = [executable.graph.tensors[id] for id in feed.inputs if executable.graph.tensors[id].role.is_variable]
    for tensor in (*executable.inputs, *weights):
        needed = tensor.nelms * everything // (step.replicas if tensor.id in broadcast else 1)
        count = feed.input_elements(tensor.id)
        if count != needed:
            raise SessionError(_text("input", tensor, needed, count, executable, None))
    for id, anchor in executable.anchors.items():
        tensor = executable.graph.tensor(id)
        needed = tensor.nelms * everything // step.divisor(anchor)
        count = feed.output_elements(id)
        if count != needed:
            raise SessionError(_text("output", tensor, needed, count, executable, anchor))


def _check_input_known(id: str, executable: Executable) -> None:
    tensors = executable.graph.tensors
    if id not in tensors:
        raise SessionError(
            f"Testing that the buffer provided by user for input Tensor {id} has the correct number of elements, "
            f"But there is no Tensor named {id} in the Ir's main Graph, and it does not exist in the original ONNX "
            "Model."
        )
    if tensors[id].role.value not in ("input", "weight"):
        raise SessionError(
            f"The tensor '{id}' has been provided as one of the inputs to the stepIO, but it is not registered as "
            "one of the inputs to the model. Please check this tensor and your stepIO."
        )


def _text(
    direction: str, tensor: Tensor, needed: int, count: int, executable: Executable, anchor: Anchor | None
) -> str:
    step = executable.step
    lines = [
        f"Unexpected number of {direction} elements for Tensor {tensor.id}. Expected {needed}, but received {count}.",
        "To disable this check at your own risk, use IStepIO::enableRuntimeAsserts.",
        "This with, ",
        f"   replication  factor = {step.replicas}",
        f"   accumulation factor = {step.accumulation}",
        f"   batches per step    = {step.batches}",
        f"   Tensor nelms        = {tensor.nelms}",
    ]
    if anchor is not None:
        lines.append(f"The anchor return type is  {anchor.returns.value}")
        if anchor.returns is Return.EVERY_N:
            lines.append(f"The return period is {anchor.period}")
    return "\n".join(lines)


class StepFeed(ArrayFeed):
    """Step data with inputs from ``feed`` and outputs to arrays by tensor id.

    The names of the feed's arrays are tensor ids; ``names`` gives ids for a tuple or one array, or other ids for a
    dict. With synthetic data outputs are not written, as in PopART.
    """

    def __init__(
        self, feed: Feed, outputs: Mapping[str, NDArray[Any]], names: Sequence[str] | Mapping[str, str] | None = None
    ) -> None:
        super().__init__({}, outputs)
        self.feed = feed
        self._ids = _ids(feed, names)

    def attach(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the next step; raise FeedError if there is none."""
        try:
            arrays = self.feed.next_arrays()
        except StopIteration:
            raise FeedError(
                f"The feed has delivered all of its {self.feed.position} steps; run "
                "fewer steps, or give it more epochs "
                "(epochs=None repeats the data without end)"
            ) from None
        self.provide(dict(zip(self._ids, arrays, strict=True)))
        super().attach(tensors)

    @property
    def step(self) -> int:
        """The number of the current step."""
        return self.feed.position - 1

    def upcoming(self) -> ArrayFeed | None:
        """Return the data of the next step if they are ready, else None."""
        arrays = self.feed.upcoming()
        if arrays is None:
            return None
        ahead = ArrayFeed(dict(zip(self._ids, arrays, strict=True)), {})
        ahead.attach(self._tensors)
        return ahead

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Store the next chunk of an output."""
        if self.feed.mode is not DataMode.SYNTHETIC:
            super().write(id, value)


def _ids(feed: Feed, names: Sequence[str] | Mapping[str, str] | None) -> list[str]:
    keys = list(feed.structure.keys)
    if isinstance(names, Mapping):
        return [names.get(key, key) for key in keys]
    if names is None and feed.structure.kind is dict:
        return keys
    if names is None or len(names) != len(keys):
        count = 0 if names is None else len(names)
        raise FeedError(f"The feed's samples are {feed.structure}; name {len(keys)} tensors with names=, not {count}")
    return list(names)


class CallbackFeed:
    """Step data from callbacks: ``input(id, prefetch)`` and ``output(id)`` return arrays; completion is then called.

    The first chunk of an input in a step is requested with ``prefetch`` False, the others with True if streams are
    prefetched: ``input`` may then return None, and is called again with False.
    """

    def __init__(
        self,
        input: Callable[[str, bool], NDArray[Any] | None],
        input_complete: Callable[[str], object],
        output: Callable[[str], NDArray[Any]],
        output_complete: Callable[[str], object],
    ) -> None:
        self._input, self._input_complete = input, input_complete
        self._output, self._output_complete = output, output_complete
        self._tensors: Mapping[str, Tensor] = {}
        self._prefetch = False
        self._begun: set[str] = set()

    def attach(self, tensors: Mapping[str, Tensor], *, prefetch: bool = False) -> None:
        """Start a step: set the tensors of the chunks, and whether streams are prefetched."""
        self._tensors, self._prefetch = tensors, prefetch
        self._begun.clear()

    def read(self, id: str) -> NDArray[Any]:
        """Request the next chunk of an input."""
        chunk = self._input(id, True) if self._prefetch and id in self._begun else None
        if chunk is None:
            chunk = self._input(id, False)
        self._begun.add(id)
        if chunk is None:
            raise SessionError(f"[StepIOSplitter] IStepIO unexpectedly did not provide input data for tensor {id}")
        chunk = np.asarray(chunk)
        _check_contiguous(id, chunk, "input")
        tensor = self._tensors[id]
        if chunk.size != tensor.nelms:
            raise SessionError(f"The input callback gave {chunk.size} elements for {tensor}; give {tensor.nelms}")
        is_converted(id, chunk.dtype, tensor.dtype)
        copy = np.array(chunk, dtype=tensor.dtype.numpy)
        self._input_complete(id)
        return copy

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Store the next chunk of an output."""
        chunk = self._output(id)
        check_output_array(id, chunk)
        _check_contiguous(id, chunk, "output")
        is_converted(id, chunk.dtype, self._tensors[id].dtype)
        if chunk.size != value.size:
            raise SessionError(
                f"The output callback gave an array of {chunk.size} elements for {id}; give one of {value.size}"
            )
        np.copyto(chunk.reshape(value.shape), value, casting="unsafe")
        self._output_complete(id)


def _check_contiguous(id: str, array: NDArray[Any], direction: str) -> None:
    if not array.flags.c_contiguous:
        raise EmulatorError(
            f"PyStepIOCallback is unable to use the numpy {direction} array for tensor '{id}' as it is not "
            "c-contiguous (a data conversion here could have a significant impact on performance and hence is not "
            "allowed)"
        )
