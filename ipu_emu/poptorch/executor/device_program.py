"""Device program: a trace, compiled, on its device, with PyTorch's tensors in and out."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ipu_emu.compiler.optimisers.update_rule import UpdateRule
from ipu_emu.engine import Engine
from ipu_emu.errors import EmulatorError, PoplarError
from ipu_emu.graph import Role
from ipu_emu.hostio.feeds.array_feed import ArrayFeed
from ipu_emu.hostio.step_runner import StepRunner
from ipu_emu.poptorch.dtypes import as_numpy
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.executor.arguments import anchor_array, as_output, rebuilt
from ipu_emu.poptorch.executor.compiling import compile_trace
from ipu_emu.poptorch.executor.session_options import session_options
from ipu_emu.poptorch.options.options import Options
from ipu_emu.poptorch.tracing.trace import ModuleTrace
from ipu_emu.session.host_weights import HostWeights
from ipu_emu.session.loaded_program import LoadedProgram, update_scalars
from ipu_emu.session.options.compile_options import data_mode
from ipu_emu.session.options.engine_options import STREAMING_FOLDER, engine_options
from popdist_py.trace import Category, span


class DeviceProgram(LoadedProgram):
    """``attach`` loads the weights of ``module``; ``run`` runs one step.

    Since the device and the module had the same values, the device has trained weights (``is_trained``), or changed
    buffers (``has_new_buffers``).
    """

    def __init__(
        self, module: torch.nn.Module, trace: ModuleTrace, options: Options, rule: UpdateRule | None
    ) -> None:
        training = rule is not None
        try:
            compiled = compile_trace(trace, options, rule)
        except EmulatorError as error:
            raise Error(str(error), "popart_exception") from error
        session = session_options(options, training=training, ipus=compiled.target.ipus)
        super().__init__(
            compiled,
            "training" if training else "inference",
            HostWeights(compiled.step.graph, compiled.step.gradients),
            folder=engine_options(session.engineOptions).get(STREAMING_FOLDER),
            watch=bool(session.enableFloatingPointChecks),
        )
        self.module, self.trace, self.options, self.rule = module, trace, options, rule
        self.is_trained = self.has_new_buffers = False
        self.seconds: list[tuple[float, float, float]] = []
        self.random_state = (int(options.random_seed or 0), 0)
        self._steps = StepRunner(data_mode(session), frozenset())

    # The device

    def attach(self) -> None:
        """Create the engine, with the host's values of weights and states."""
        self.load()
        self.upload(fresh=True)
        if self.rule is not None:
            self.set_scalars(self.rule)

    # Weights

    def take(self, names: Collection[str] | None = None) -> None:
        """Set the values of parameters and buffers, by default of all, for the next ``attach`` or ``upload``."""
        for name, tensor in tensors_of(self.module).items():
            if name in self.weights.values and (names is None or name in names):
                self.weights.values[name] = as_numpy(tensor)

    def give(self) -> None:
        """Copy the device's values to the module."""
        self.is_trained = self.has_new_buffers = False  # first, because reading tensors would fetch again
        self.fetch()
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            for name, tensor in tensors_of(self.module).items():
                value = self.weights.values.get(name)
                if value is not None:
                    tensor.detach().copy_(torch.from_numpy(np.array(value)).reshape(tensor.shape))

    def states(self) -> dict[str, torch.Tensor]:
        """The optimiser's states by id."""
        self.fetch()
        graph, values = self.compiled.step.graph, self.weights.values
        return {n: torch.from_numpy(np.array(v)) for n, v in values.items() if graph.tensors[n].role is Role.STATE}

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Set states that exist; the others keep their values."""
        self.fetch()
        for name, value in states.items():
            if name in self.weights.values:
                self.weights.take(name, np.asarray(value).astype(self.weights.values[name].dtype))
        self.upload()

    def scalars(self) -> dict[str, float]:
        """The values of the optimiser's scalars by id."""
        assert self.trace.loss is not None
        assert self.rule is not None
        loss = self.trace.graph.tensors[self.trace.loss].dtype
        return {id: scalar.value for id, scalar in update_scalars(self.compiled.step, self.rule, loss).items()}

    def set_scalars(self, rule: UpdateRule) -> None:
        """Use the values of ``rule`` from the next step on; raise Error if a constant one differs."""
        self.rule = rule
        tensors, data = self.compiled.step.graph.tensors, self.compiled.step.graph.data
        for id, value in self.scalars().items():
            if tensors[id].role is Role.SCALAR:
                scaled = self.options.Training.auto_loss_scaling and id.startswith("lossScaling")
                if not scaled:
                    self.write_scalar(id, value)
            elif id in data and np.float32(value) != np.float32(data[id]):
                name = id.partition("___")[0]
                raise Error(
                    f"{name} is constant and was {float(data[id]):g} when the model was compiled; it cannot become "
                    f"{value:g}. Mark the attribute as variable before the first call",
                    "popart_exception",
                )

    # Running

    @span("step", Category.COMPUTE)
    def run(self, inputs: Sequence[torch.Tensor]) -> dict[str, NDArray[Any]]:
        """Run one step; return the anchors by id."""
        assert self.engine is not None
        executable = self.compiled.executable
        tensors, step = executable.graph.tensors, executable.step
        started = time.perf_counter()
        arrays = [self._grouped(as_numpy(tensor)) for tensor in inputs]
        outputs = {id: anchor_array(step, anchor, tensors[id]) for id, anchor in executable.anchors.items()}
        feed = ArrayFeed(dict(zip(self.trace.inputs, arrays, strict=True)), outputs)
        begun = time.perf_counter()
        try:
            self._steps.run(self.engine, feed, checks_sizes=False)
        except (EmulatorError, PoplarError) as error:
            raise Error(str(error), "poplar_exception") from error
        self.weights.follow(self.engine)
        ended = time.perf_counter()
        self.seconds.append((begun - started, ended - begun, 0.0))
        del self.seconds[:-100]
        self.is_trained, self.has_new_buffers = self.rule is not None, bool(self.trace.changed_buffers)
        return outputs

    def result(self, outputs: Mapping[str, NDArray[Any]], inputs: Sequence[torch.Tensor]) -> Any:
        """Return what forward returns, from the ``outputs`` of a step; change the ``inputs`` that forward changes."""
        for number, id in self.trace.changed_inputs.items():
            source = torch.from_numpy(np.asarray(outputs[id])).reshape(-1)
            if source.numel() == inputs[number].numel():
                with torch.no_grad():
                    inputs[number].copy_(source.reshape(inputs[number].shape))
        leaves = []
        for output in self.trace.outputs:
            if isinstance(output, torch.Tensor):
                warnings.warn("A tensor of the host is returned as it is, without a batch", stacklevel=3)
            leaves.append(as_output(outputs[output].copy()) if isinstance(output, str) else output)
        return rebuilt(self.trace.structure, leaves)

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
    """Weights, optimiser states and scalars on the device, as checkpoints save and restore them."""

    def __init__(self, program: DeviceProgram) -> None:
        self._program = program

    @property
    def engine(self) -> Engine:
        """The engine, which holds the values."""
        if self._program.engine is None:
            raise Error("Device is not attached")
        return self._program.engine

    def restore(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Set the values, which the module must then fetch."""
        self._program.restore(values)
        self._program.is_trained = True


def tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a module by name."""
    tensors = dict(module.named_parameters(remove_duplicate=False))
    return tensors | dict(module.named_buffers(remove_duplicate=False))
