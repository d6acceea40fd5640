"""Pipeline call: its checked arguments, and the schedule that they select."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules import Slot, schedule
from ipu_emu.tensorflow.run.argument_checks import check_call, check_when_compiled
from ipu_emu.tensorflow.run.pipeline_arguments import PipelineArguments


@dataclass(frozen=True)
class PipelineCall(PipelineArguments):
    """A pipeline call; raise TensorFlow's errors for invalid arguments.

    Errors that depend on the compiled program are raised immediately, or if the call is ``late`` by
    ``check_compiled``.
    """

    def __post_init__(self) -> None:
        check_call(self)
        if not self.late:
            self.check_compiled()

    def check_compiled(self) -> None:
        """Raise the first error that depends on the compiled program."""
        check_when_compiled(self)
        if isinstance(self.gradient_accumulation_count, int):
            self._slots(self.gradient_accumulation_count)

    def slots(self) -> Iterator[Slot]:
        """Return the tasks of every slot of a batch; raise EmulatorError for an invalid count from a function."""
        count = self.gradient_accumulation_count
        if not callable(count):
            return self._slots(count or 0)
        try:
            return self._slots(count())
        except EmulatorError as error:
            raise EmulatorError(f"Pipeline depth is invalid. {error.args[0]}") from error

    def _slots(self, count: int) -> Iterator[Slot]:
        return schedule(
            self.kind.name.lower(),
            len(self.computational_stages),
            count,
            training=self.optimizer_function is not None,
            mapping=self.mapping,
            recompute=self.allow_recompute and self.optimizer_function is not None,
            io_tiles=self.io_tiles,
            iterations=self.batch_serialization_iterations,
        )
