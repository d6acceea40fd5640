"""Traced program: runs a TensorFlow program up to the first run of a compiled function."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.pipeline import CompileState, run_passes
from ipu_emu.compiler.traced_training import TRACE_FOLDER, from_bytes
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Role, StepPhase
from ipu_emu.hardware import System
from ipu_emu.predict import Prediction, Profile
from popdist_py.dependent_program import dependent

#: Lines of the program's own messages that are repeated if it fails.
_LINES = 5


def is_program(model: str) -> bool:
    """Whether a command was given a Python program."""
    return model.endswith(".py")


@dataclass(frozen=True)
class TracedPipeline:
    """The pipeline of a traced program; ``mapping`` has the IPU, or the IPUs, of each stage."""

    kind: str
    stages: int
    count: int
    training: bool
    mapping: list[int | list[int]]
    recompute: bool
    iterations: int


@dataclass(frozen=True)
class TracedProgram(CompileRequest):
    """A compiled function of a program, with the options that the program set."""

    state: CompileState | None = None

    @classmethod
    def of(cls, path: str) -> TracedProgram:
        """Trace the program; raise EmulatorError if it compiles nothing."""
        if not Path(path).is_file():
            raise EmulatorError(f"{path}: there is no such file; name the program to compile")
        with TemporaryDirectory(prefix="ipu-emu-") as folder:
            command = dependent([sys.executable, "-m", "ipu_emu.compat", path])
            done = subprocess.run(
                command, env=os.environ | {TRACE_FOLDER: folder}, capture_output=True, text=True, check=False
            )
            states = [from_bytes(file.read_bytes()) for file in sorted(Path(folder).iterdir())]
        if not states:
            said = "\n".join(done.stderr.strip().splitlines()[-_LINES:])
            raise EmulatorError(
                f"{path} ended with code {done.returncode} before it ran a compiled function:\n{said}"
            )
        return cls._of(path, max(states, key=lambda state: len(state.graph.ops)))

    @classmethod
    def _of(cls, path: str, state: CompileState) -> TracedProgram:
        options = state.options
        return cls(
            path,
            training=bool(state.gradients),
            accumulation=options.step.accumulation,
            replicas=options.replicas,
            ipus=1 + max((op.place.ipu for op in state.graph.ops), default=0),
            schedule=options.pipeline.schedule if options.pipeline else "",
            state=state,
        )

    @property
    def title(self) -> str:
        parts = [self.model, "training" if self.training else "inference"]
        parts += [f"{self.accumulation} accumulated"] if self.accumulation > 1 else []
        parts += [f"{self.replicas} replicas"] if self.replicas > 1 else []
        parts += [f"{self.ipus} IPUs per replica"] if self.ipus > 1 else []
        return ", ".join([*parts, *([f"{self.schedule} pipeline"] if self.schedule else [])])

    def pipeline(self) -> TracedPipeline:
        """The pipeline that the program builds; raise EmulatorError if it builds none."""
        assert self.state is not None
        options = self.state.options
        if options.pipeline is None:
            raise EmulatorError(
                f"{self.model} builds no pipeline; name a program that does, or give --stages and --count"
            )
        places = {op.place for op in self.state.graph.ops if op.phase is StepPhase.FORWARD}
        stages = 1 + max(place.stage for place in places)
        ipus = [sorted({place.ipu for place in places if place.stage == stage}) for stage in range(stages)]
        iterations = options.pipeline.iterations
        count = options.step.accumulation if self.training else options.step.batches
        return TracedPipeline(
            self.schedule,
            stages,
            count // iterations,
            self.training,
            [numbers[0] if len(numbers) == 1 else numbers for numbers in ipus],
            options.recomputation is Recomputation.PIPELINE,
            iterations,
        )

    @property
    def micro_batch(self) -> int:
        """The first size of the first input."""
        assert self.state is not None
        inputs = self.state.graph.with_role(Role.INPUT)
        return inputs[0].shape[0] if inputs and inputs[0].shape else 1

    @property
    def samples(self) -> int:
        assert self.state is not None
        step = self.state.options.step
        return self.micro_batch * step.batches * step.accumulation * self.replicas

    @property
    def batch_is_free(self) -> bool:
        return False

    def estimated(self) -> int | None:
        return None

    def predicted(self, system: System, profile: Profile | None = None, release: str = "") -> Prediction | None:
        return None

    def compiled_until(self, stop_after: str, system: System | None = None) -> CompileState:
        """Return the compiler's state after the pass ``stop_after``."""
        assert self.state is not None
        if stop_after in ("", *self.state.done):
            return self.state
        return run_passes(replace(self.state), stop_after=stop_after)
