"""Device program: a compiled trace with its engine, weights and optimiser states."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ipu_emu.compiler.optimisers.gradient_clipping import CLIP_SCALE, clip_scale
from ipu_emu.compiler.optimisers.update_rule import UpdateRule
from ipu_emu.engine import Engine, Replicas
from ipu_emu.errors import EmulatorError, PoplarError
from ipu_emu.graph import Role
from ipu_emu.hostio.feeds.array_feed import ArrayFeed
from ipu_emu.hostio.host_weights import HostWeights
from ipu_emu.poptorch.dtypes import as_numpy
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.executor.compiling import CompiledStep
from ipu_emu.poptorch.executor.outputs import anchor_array
from ipu_emu.poptorch.options.options import Options
from ipu_emu.poptorch.tracing.trace import ModuleTrace
from ipu_emu.program.clock.program_record import ProgramRecord
from popdist_py.trace import Category, span

__all__ = ["DeviceProgram", "TrainedState"]


class DeviceProgram:
    """``load`` attaches to the device; ``run`` runs one step."""

    def __init__(self, trace: ModuleTrace, compiled: CompiledStep, options: Options, rule: UpdateRule | None) -> None:
        self.trace, self.compiled, self.options, self.rule = trace, compiled, options, rule
        self.weights = HostWeights(compiled.step.graph, compiled.step.gradients)
        self.engine: Engine | None = None
        self.file, self.record = compiled.file, cast(ProgramRecord | None, None)
        self.seconds: list[tuple[float, float, float]] = []
        self._random: tuple[int, int] = (int(options.random_seed or 0), 0)

    # The device

    def load(self) -> None:
        """Create the engine, with the host's values of weights and states."""
        o = self.options
        local, processes = int(o.replication_factor), o.Distributed.numProcesses
        replicas = Replicas(local=local, offset=o.Distributed.processId * local, total=local * processes)
        watch = bool(o.Precision.floating_point_exceptions)
        with span("load the engine", Category.INITIALISATION):
            self.engine = Engine(self.compiled.executable, replicas, watch=watch)
        self.engine.record = self.record
        self.engine.seed, self.engine.steps = self._random
        with span("weights to the device", Category.WEIGHTS):
            self.weights.load(self.engine, fresh=True)
        if self.rule is not None:
            self.set_scalars(self.rule)

    def saved(self, filename: str) -> None:
        """Record that the program was saved in this file, and write its profile next to it."""
        self.file = Path(filename)
        if self.record is not None:
            self.record.write()

    def unload(self) -> None:
        """Read everything back, and free the device."""
        if self.engine is not None:
            self.weights.fetch(self.engine)
            self._random = (self.engine.seed, self.engine.steps)
            self.engine.close()
            self.engine = None

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

    def take(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Set the values of parameters and buffers from the host's tensors, for the next ``load`` or ``upload``."""
        for name, tensor in tensors.items():
            if name in self.weights.values:
                self.weights.values[name] = as_numpy(tensor)

    @span("weights to the host", Category.WEIGHTS)
    def give(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy the device's values to the host's tensors."""
        if self.engine is not None:
            self.weights.fetch(self.engine)
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            for name, tensor in tensors.items():
                value = self.weights.values.get(name)
                if value is not None:
                    tensor.detach().copy_(torch.from_numpy(np.array(value)).reshape(tensor.shape))

    @span("weights to the device", Category.WEIGHTS)
    def upload(self) -> None:
        """Copy the host's values to the device."""
        if self.engine is not None:
            self.weights.load(self.engine)

    def restore(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Set weights, states and scalars on the host and on the device, which is attached."""
        assert self.engine is not None
        for id_ in [one for one in self.weights.values if one in values]:
            self.weights.take(id_, values[id_])
        self.weights.load(self.engine)
        for id_, value in values.items():
            if id_ not in self.weights.values:
                self.engine.write(id_, value)

    def states(self) -> dict[str, NDArray[Any]]:
        """The optimiser's states by id."""
        if self.engine is not None:
            self.weights.fetch(self.engine)
        graph = self.compiled.step.graph
        return {n: v for n, v in self.weights.values.items() if graph.tensors[n].role is Role.STATE}

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Set states that exist; the others keep their values."""
        if self.engine is not None:
            self.weights.fetch(self.engine)
        for name, value in states.items():
            if name in self.weights.values:
                self.weights.take(name, np.asarray(value).astype(self.weights.values[name].dtype))
        self.upload()

    def scalars(self, rule: UpdateRule) -> dict[str, float]:
        """The values of the optimiser's scalars by id."""
        step, loss = self.compiled.step, self.trace.loss
        divisor = step.options.remaining_divisor
        assert loss is not None
        values = {rule.loss_scaling_id(self.trace.graph.tensors[loss].dtype): rule.loss_scaling.value}
        if rule.clips:
            values[CLIP_SCALE] = clip_scale(rule, divisor=divisor).value
        for gradient in step.gradients:
            if gradient.weight:
                scalars = rule.scalars(gradient.weight, divisor=divisor)
                values |= {id_: hyper.value for id_, hyper in scalars.items()}
        return {id_: value for id_, value in values.items() if id_ in step.graph.tensors}

    def set_scalars(self, rule: UpdateRule) -> None:
        """Use the values of ``rule`` from the next step on; raise Error if a constant one differs."""
        self.rule = rule
        tensors, data = self.compiled.step.graph.tensors, self.compiled.step.graph.data
        for id_, value in self.scalars(rule).items():
            if tensors[id_].role is Role.SCALAR:
                scaled = self.options.Training.auto_loss_scaling and id_.startswith("lossScaling")
                if not scaled:
                    self._set_scalar(id_, np.float32(value))
            elif id_ in data and np.float32(value) != np.float32(data[id_]):
                name = id_.partition("___")[0]
                raise Error(
                    f"{name} is constant and was {float(data[id_]):g} when the model was compiled; it cannot become "
                    f"{value:g}. Mark the attribute as variable before the first call",
                    "popart_exception",
                )

    def _set_scalar(self, id_: str, value: np.float32) -> None:
        """Set a scalar on the device if it has changed, because writing searches for its copies on all IPUs."""
        if self.engine is None or id_ not in self.engine.executable.graph.tensors:
            return
        if self.engine.view(id_) != value:
            self.engine.write(id_, np.array(value))

    # Running

    @span("step", Category.COMPUTE)
    def run(self, inputs: Sequence[torch.Tensor]) -> dict[str, NDArray[Any]]:
        """Run one step; return the anchors by id."""
        assert self.engine is not None
        executable = self.compiled.executable
        tensors, step = executable.graph.tensors, executable.step
        started = time.perf_counter()
        given = {id_: self._grouped(as_numpy(tensor)) for id_, tensor in zip(self.trace.inputs, inputs, strict=True)}
        outputs = {id_: anchor_array(step, anchor, tensors[id_]) for id_, anchor in executable.anchors.items()}
        feed = ArrayFeed(given, outputs)
        feed.attach(tensors)
        begun = time.perf_counter()
        try:
            self.engine.run(feed)
        except (EmulatorError, PoplarError) as error:
            raise Error(str(error), "poplar_exception") from error
        self.weights.follow(self.engine)
        ended = time.perf_counter()
        self.seconds.append((begun - started, ended - begun, 0.0))
        del self.seconds[:-100]
        return outputs

    def _grouped(self, array: NDArray[Any]) -> NDArray[Any]:
        """Repeat the values that the replicas of a group share."""
        size = int(self.options.input_group_size)
        if size == 1:
            return array
        o = self.options
        groups = int(o.replication_factor) // size
        blocks = o.batches // groups
        parts = array.reshape(blocks, groups, -1)
        orthogonal = o.input_cgt.name == "Orthogonal"
        repeated = np.tile(parts, (1, size, 1)) if orthogonal else np.repeat(parts, size, axis=1)
        return np.ascontiguousarray(repeated)


class TrainedState:
    """Weights, optimiser states and scalars on the device, as checkpoints save and restore them.

    ``changed`` is called after values were restored, which the module must then fetch.
    """

    def __init__(self, program: DeviceProgram, changed: Callable[[], None]) -> None:
        self._program, self._changed = program, changed

    @property
    def engine(self) -> Engine:
        """The engine, which holds the values."""
        if self._program.engine is None:
            raise Error("Device is not attached")
        return self._program.engine

    def restore(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Set the values."""
        self._program.restore(values)
        self._changed()
