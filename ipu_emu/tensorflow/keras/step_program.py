"""Step program: a number of steps of ``train_step``, ``test_step`` or ``predict_step`` as a program of the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.util import nest

from ipu_emu.errors import EmulatorError
from ipu_emu.ops.core.axis_sums import mean_of
from ipu_emu.tensorflow.api.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_emu.tensorflow.keras.layer_calls import layer_calls
from ipu_emu.tensorflow.keras.options import ModelOptions
from ipu_emu.tensorflow.keras.pipeline_section import is_pipelined, pipeline_section, stages_of
from ipu_emu.tensorflow.run.feeds.element_source import ElementSource
from ipu_emu.tensorflow.run.host_calls import translated
from ipu_emu.tensorflow.run.program import Program
from ipu_emu.tensorflow.run.variables import HostVariables
from ipu_emu.tensorflow.trace.devices import on_ipu
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, Section

_STEPS: dict[str, tuple[str, str]] = {
    "train": ("train_step", "_train_counter"),
    "test": ("test_step", "_test_counter"),
    "predict": ("predict_step", "_predict_counter"),
}


class StepProgram:
    """``steps`` steps of ``model`` on elements of ``spec``; ``kind`` is train, test or predict.

    The steps of training are divided into batches of ``accumulation`` mini-batches.
    """

    def __init__(
        self, model: Any, kind: str, spec: Any, steps: int, device: int, options: ModelOptions, accumulation: int = 1
    ) -> None:
        self._model, self._kind, self._options = model, kind, options
        self._source, self._steps = ElementSource(spec), steps
        pipelined = is_pipelined(model)
        #: Number of mini-batches over which metrics are averaged.
        self._added = accumulation if kind == "train" and pipelined and options.accumulate_outfeed else 1
        every = kind == "predict" or options.asynchronous or self._added > 1
        self._results = IPUOutfeedQueue(IPUOutfeedMode.ALL if every else IPUOutfeedMode.LAST)
        self._trace = FunctionTrace(kind, device)
        self._structure: Any = None
        self._trace.reduces = kind == "train"
        with on_ipu(device), _errors_of_tensorflow():
            self._trace.call(lambda: self._build(steps, accumulation), [])
            self.program = Program(self._trace, [])
        self._variables = HostVariables(self._trace)

    @property
    def replicas(self) -> int:
        """The replicas of this process."""
        return self.program.share.local

    def _build(self, steps: int, accumulation: int) -> None:
        trace, model, options = self._trace, self._model, self._options
        stages = stages_of(model) if is_pipelined(model) else None
        section = Section("loop", trace.position(), batches=steps // accumulation, accumulation=accumulation)
        section.reduction = options.reduction_of(stages is not None)
        section.offload = options.optimiser.get("offload_weight_update_variables")
        if stages is not None:
            section.kind = "pipeline"
            if self._kind != "train":
                section.batches, section.accumulation = 1, steps
        with trace.in_section(section), layer_calls(model) as calls:
            self._structure = self._step(self._source.dequeue(trace))
            self._results.enqueue(self._structure)
            section.roots = trace.effects(section.start)
            if stages is not None:
                trains = self._kind == "train"
                section.pipeline = pipeline_section(trace, section, options, stages, calls, trains=trains)

    def _step(self, data: Any) -> Any:
        """Run a step, then advance its counter."""
        method, counter = _STEPS[self._kind]
        outputs = getattr(self._model, method)(data)
        getattr(self._model, counter).assign_add(1)
        return outputs

    def run(self, elements: Iterator[Any], tell: Callable[[Any], None] | None = None) -> Any:
        """Run on the next elements; return the results in the structure that a step returns.

        Each result has the axes [steps, replicas, ...], those of training and tests [replicas, ...] for the last
        step. ``tell`` is called with the results of each step, [replicas, ...], while the program runs.
        """
        self._source.set(elements, self._options.infeed.get("prefetch_depth"), self._steps * self.replicas)
        pack = nest.pack_sequence_as
        self.program.enqueued = None if tell is None else lambda arrays: tell(pack(self._structure, arrays))
        try:
            with _errors_of_tensorflow():
                self.program.run_with(self._variables, {})
        finally:
            self._source.close()
        arrays = self._results._take()
        if self.replicas == 1:
            axis = 1 if self._results.keeps_all else 0
            arrays = [array[(slice(None),) * axis + (None,)] for array in arrays]
        if self._kind != "predict" and self._results.keeps_all:
            arrays = [_last(array, self._added) for array in arrays]
        return nest.pack_sequence_as(self._structure, arrays)

    def close(self) -> None:
        """Free the memory of the device."""
        self.program.close()


def _last(array: Any, count: int) -> Any:
    """The last of [steps, replicas, ...], or the mean of the last ``count``."""
    if count == 1:
        return array[-1]
    return mean_of(array[-count:], (0,))


@contextmanager
def _errors_of_tensorflow() -> Iterator[None]:
    """Raise errors of the emulator in the ``with`` block as TensorFlow's."""
    try:
        yield
    except EmulatorError as error:
        raise translated(error) from None
