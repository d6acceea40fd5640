"""Loaded program: a compiled program on its IPUs: its engine, the host's copies of its variables, its random numbers.

program = LoadedProgram(compiled, "training", weights)
program.load()          create the engine
program.upload()        weights and states to the replicas
...                     steps
program.unload()        everything back to the host, and free the memory
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.compiler.optimisers.gradient_clipping import CLIP_SCALE, clip_scale
from ipu_emu.compiler.optimisers.update_rule import HyperParameter, UpdateRule
from ipu_emu.compiler.pipeline import CompileState
from ipu_emu.engine import Engine, Replicas
from ipu_emu.graph import DType
from ipu_emu.hardware import StreamingMemory
from ipu_emu.program.executable import Executable
from ipu_emu.session.compiled_program import CompiledProgram
from ipu_emu.session.footprint import streaming_memory_of
from ipu_emu.session.host_weights import HostWeights
from ipu_emu.session.program_record import ProgramRecord
from popdist_py.environment import mpirun_rank
from popdist_py.messages.user_warning import warn_user
from popdist_py.trace import Category, span


def _say_not_a_job() -> None:
    """Warn on the first rank of a plain mpirun, whose processes know nothing of each other."""
    rank, size = mpirun_rank(os.environ) or (0, 1)
    if size > 1 and rank == 0:
        warn_user(
            f"mpirun started {size} processes of this program, and each works alone; for one job, start it with "
            f"poprun-py --num-instances {size} --num-replicas {size}"
        )


class LoadedProgram:
    """``name`` is that of its profile, ``folder`` is for files of Streaming Memory.

    With ``watch`` a step raises an error if an op produces an infinity or NaN.
    """

    def __init__(
        self,
        compiled: CompiledProgram,
        name: str,
        weights: HostWeights | None = None,
        *,
        folder: str | None = None,
        watch: bool = False,
    ) -> None:
        _say_not_a_job()
        target = compiled.target
        self.compiled, self.name = compiled, name
        self.weights = HostWeights(compiled.step.graph) if weights is None else weights
        self.engine: Engine | None = None
        #: The file of the executable, if that was saved or loaded.
        self.file: Path | None = None
        self._replicas = Replicas(local=target.local, offset=target.offset, total=target.total)
        self._folder, self._watch = folder, watch
        self._record: ProgramRecord | None = None
        self._random = (0, 0)

    # The device

    def load(self) -> Engine:
        """Create the engine, with the random numbers of the last one."""
        with span("load the engine", Category.INITIALISATION):
            self.engine = self.engine_of(self.compiled.executable)
        self.engine.seed, self.engine.steps = self._random
        self.write_profile()
        return self.engine

    def engine_of(self, executable: Executable) -> Engine:
        """Return an engine for the same replicas."""
        return Engine(executable, self._replicas, folder=self._folder, watch=self._watch)

    def unload(self) -> None:
        """Read everything back, and free the device."""
        if self.engine is not None:
            self.weights.fetch(self.engine)
            self._random = (self.engine.seed, self.engine.steps)
            self.close()

    def close(self) -> None:
        """Free the device."""
        if self.engine is not None:
            self.engine.close()
            self.engine = None

    @cached_property
    def streaming_memory(self) -> StreamingMemory:
        """The Streaming Memory of this process; off-chip tensors take part of it."""
        plan, target = self.compiled.executable.plan, self.compiled.target
        taken = target.local * sum(plan.streaming_bytes_of(ipu) for ipu in range(plan.ipus))
        return StreamingMemory(streaming_memory_of(target.device), taken=taken, folder=self._folder)

    @property
    def random_state(self) -> tuple[int, int]:
        """The seed, and the number of steps since it was set."""
        return self._random if self.engine is None else (self.engine.seed, self.engine.steps)

    @random_state.setter
    def random_state(self, state: tuple[int, int]) -> None:
        self._random = state
        if self.engine is not None:
            self.engine.seed, self.engine.steps = state

    # Weights

    @span("weights to the device", Category.WEIGHTS)
    def upload(self, *, fresh: bool = False) -> None:
        """Copy the host's values to the device, if there is one; the memory of a ``fresh`` engine is zero."""
        if self.engine is not None:
            self.weights.load(self.engine, fresh=fresh)

    @span("weights to the host", Category.WEIGHTS)
    def fetch(self) -> None:
        """Copy the device's values to the host, if there is one."""
        if self.engine is not None:
            self.weights.fetch(self.engine)

    def restore(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Set weights, states and scalars on the host and on the device, which is attached."""
        assert self.engine is not None
        for id in [id for id in self.weights.values if id in values]:
            self.weights.take(id, values[id])
        self.upload()
        for id, value in values.items():
            if id not in self.weights.values:
                self.engine.write(id, value)

    def write_scalar(self, id: str, value: float) -> None:
        """Set a scalar on the device, if there is one and its value is another."""
        if self.engine is None or id not in self.engine.executable.graph.tensors:
            return
        if self.engine.view(id) != np.float32(value):  # writing searches for its copies on all IPUs
            self.engine.write(id, np.array(value, np.float32))

    # The profile

    def write_profile(self) -> None:
        """Write the profile of the program if this process records a trace, again once the executable has a file."""
        if self._record is not None:
            self._record.write()
        else:
            offset = self.compiled.target.offset
            step, name = self.compiled.modelled, self.name
            self._record = ProgramRecord.of(step, name, executable=self._saved, offset=offset)
        if self.engine is not None:
            self.engine.record = self._record

    def saved(self, file: str | Path) -> None:
        """The program was saved in this file: write its profile next to it."""
        self.file = Path(file)
        self.write_profile()

    def _saved(self) -> Path | None:
        return self.file or self.compiled.file


def update_scalars(step: CompileState, rule: UpdateRule, loss: DType) -> dict[str, HyperParameter]:
    """The scalars of the optimiser in a step by id, with the values of ``rule``; the loss has the type ``loss``."""
    divisor = step.options.remaining_divisor
    scalars = {rule.loss_scaling_id(loss): rule.loss_scaling}
    if rule.clips:
        scalars[CLIP_SCALE] = clip_scale(rule, divisor=divisor)
    for gradient in step.gradients:
        if gradient.weight:
            scalars |= rule.scalars(gradient.weight, divisor=divisor)
    return {id: scalar for id, scalar in scalars.items() if id in step.graph.tensors}
