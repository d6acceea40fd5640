"""PoplarExecutor: a module that is traced and compiled at its first call, and runs on emulated IPUs."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ipu_emu.errors import EmulatorError
from ipu_emu.hostio.weights_digest import report_digest
from ipu_emu.poptorch.blocks import module_repr
from ipu_emu.poptorch.enums import ConnectionType, MeanReductionStrategy, OutputMode
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.executor.arguments import Arguments, as_output, cleaned, first_micro_batch, rebuilt
from ipu_emu.poptorch.executor.checks import check_buffers, check_inference, check_overlap, checked_options
from ipu_emu.poptorch.executor.compiling import output_mode
from ipu_emu.poptorch.executor.device_program import DeviceProgram, TrainedState
from ipu_emu.poptorch.executor.hooks import compilation
from ipu_emu.poptorch.executor.inspection import Inspection
from ipu_emu.poptorch.executor.paused_collection import paused_collection
from ipu_emu.poptorch.executor.recorded_state import RecordedState
from ipu_emu.poptorch.executor.saved_program import read_program, write_program
from ipu_emu.poptorch.executor.wrapped_modules import executor_of, offer_groupings, unwrap, withdraw_groupings, wrap
from ipu_emu.poptorch.optim.optimizers import SGD, Optimizer
from ipu_emu.poptorch.optim.update_rules import (
    OF_POPTORCH,
    check_optimizer,
    form_of,
    maximizes,
    rule_of,
    unexpected_attributes,
)
from ipu_emu.poptorch.options.options import Options
from ipu_emu.poptorch.tracing.trace import ModuleTrace, trace_module


class PoplarExecutor(Inspection):
    """The result of ``trainingModel`` and ``inferenceModel``."""

    #: The types of optimisers that train the module.
    optimizers: tuple[type, ...] = OF_POPTORCH

    def __init__(self, model: Any, options: Options | None, *, training: bool, optimizer: Any = None) -> None:
        while isinstance(model, PoplarExecutor):
            model = model.model
        checked = checked_options(model, options, training=training)
        checked._freeze()
        self._options = checked.clone()
        self._options.set(output_mode=output_mode(self._options, training=training))
        self._training = training
        self._user_model = model
        self._optimizer = optimizer
        self._arguments: Arguments | None = None
        self._program: DeviceProgram | None = None
        self._dirty = False
        self._updates = 0
        self._seen_updates = 0
        self._host_buffers_stale = False
        self._anchored: dict[str, torch.Tensor] = {}
        self._compile_seconds: float | None = None
        self._warned: set[str] = set()
        self._modes: list[tuple[str, torch.nn.Module, bool]] = []
        self._recorded: RecordedState | None = None
        if not training:
            check_inference(self._options)
        if training:
            self._set_up_training()
        self._model = copy.copy(model)
        if training:
            self._model.__dict__.pop("_poptorch_executor", None)
            wrap(model, self)
        else:
            offer_groupings(model)
        self._options._freeze()

    def _set_up_training(self) -> None:
        if self._optimizer is None:
            self._optimizer = SGD(self._user_model.parameters(), lr=0.01)
        check_optimizer(self._optimizer, self.optimizers)
        self._form = form_of(self._optimizer)
        self._known_attributes = set(unexpected_attributes(self._optimizer))
        half = getattr(self._optimizer, "accum_type", None) is torch.float16
        if half and not getattr(self._optimizer, "use_combined_accum", False):
            self._options._unfreeze()
            self._options.Training.setMeanAccumulationAndReplicationReductionStrategy(MeanReductionStrategy.Running)

    # Attributes

    @property
    def model(self) -> Any:
        """The module: the user's own for training, a shallow copy for inference."""
        return self._user_model if self._training else self._model

    @property
    def options(self) -> Options:
        """The frozen options."""
        return self._options

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.model, name)

    def train(self, mode: bool = True) -> Any:
        """Set the module to training mode."""
        return self.model.train(mode)

    def eval(self) -> Any:
        """Set the module to evaluation mode."""
        return self.model.eval()

    def __repr__(self) -> str:
        return module_repr(self.model)

    # Compiling

    def _trace(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[ModuleTrace, Arguments]:
        module = self._model
        arguments = Arguments(type(module).forward.__get__(module), args, kwargs)
        tensors = [first_micro_batch(tensor, self._options) for tensor in arguments.tensors()]

        def call(shadows: Sequence[torch.Tensor]) -> Any:
            positional, named = arguments.rebuilt(shadows)
            return module(*positional, **named)

        with compilation():
            scoped = bool(self._options.module_namescope_enabled)
            replicas = int(self._options.replication_factor), self._options.Distributed.numProcesses
            trace = trace_module(module, tensors, call, training=self._training, scoped=scoped, replicas=replicas)
        return trace, arguments

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Trace and compile the module for arguments like these, and attach to a device unless that is on demand."""
        if self._program is not None:
            warnings.warn("Call to compile() ignored: the model is already compiled", stacklevel=2)
            return
        self._compile(args, kwargs)
        if self._options.connection_type is ConnectionType.Always:
            self._attach()
        else:
            self._compiled_program().write_profile()

    @paused_collection()
    def _compile(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        started = time.perf_counter()
        other = executor_of(self._user_model)
        if other is not None and other is not self:
            other.copyWeightsToHostIfNeeded()
        trace, self._arguments = self._trace(args, kwargs)
        self._modes = [(name, module, module.training) for name, module in self.model.named_modules()]
        self._recorded = RecordedState(self._user_model, self._model)
        if self._training and maximizes(self._optimizer):
            trace.negate_loss()
        check_buffers(self._model, trace.changed_buffers, self._options)
        self._finish(trace)
        if executor_of(self._user_model) is None:
            withdraw_groupings(self._user_model, all_of_them=False)
        self._compile_seconds = time.perf_counter() - started

    def _finish(self, trace: ModuleTrace) -> None:
        rule = self._rule(trace) if self._training else None
        for long, mode, _ in self._options.anchored_tensors.values():
            if self._training and mode is None and output_mode(self._options, training=True) is OutputMode.Default:
                raise Error(f"No output mode for {long}")
        program = DeviceProgram(trace, self._options, rule)
        mode = output_mode(self._options, training=self._training)
        check_overlap(trace.overlaps, self._options, mode, program.compiled.target.ipus)
        self._program = program
        if isinstance(self._optimizer, Optimizer):
            self._optimizer._state_source = None if self._offline else self._optimizer_values
        if other := (executor_of(self._user_model) if not self._training else None):
            self._seen_updates = other._updates

    def _rule(self, trace: ModuleTrace) -> Any:
        tensors = self._tensors()
        read = {id for op in trace.graph.ops for id in op.inputs}
        names = {id(tensors[name]): name for name, grad in trace.parameters.items() if grad and name in read}
        variable = bool(self._options.Training.auto_loss_scaling)
        return rule_of(self._optimizer, names, loss_scaling_variable=variable)

    def _tensors(self) -> dict[str, torch.Tensor]:
        """The parameters and buffers of the module by name."""
        module = self._model
        tensors = dict(module.named_parameters(remove_duplicate=False))
        return tensors | dict(module.named_buffers(remove_duplicate=False))

    # Running

    @property
    def _offline(self) -> bool:
        return bool(self._options.connection_type is ConnectionType.Never)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step: D weight updates, or D inferences."""
        if self._offline:
            raise AssertionError(
                "Trying to run a model on an offline device (ConnectionType.Never): use Options.connectionType to "
                "attach to a device"
            )
        self._start(args, kwargs)
        assert self._program is not None
        for name, module, mode in self._modes:
            if module.training is not mode:
                self._mode_has_changed(name, mode)
                break
        self._refresh()
        if self._recorded is not None:
            for text in self._recorded.changes():
                self._warn_of_change(text)
        tensors = self._given
        outputs = self._program.run([cleaned(tensor, f"{number}") for number, tensor in enumerate(tensors)])
        if self._training:
            self._dirty = True
            self._updates += 1
        elif self._program.trace.changed_buffers:
            self._host_buffers_stale = True
        return self._returned(outputs, tensors)

    def _mode_has_changed(self, name: str, mode: bool) -> None:
        """Warn, once, that the mode of a module is not the one that was compiled."""
        self._warn_of_change(_changed_mode(name, mode))

    def _warn_of_change(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(f"{text}; the compiled program runs as before", stacklevel=4)

    def _start(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Compile for the first arguments, match later ones with them, and attach to a device if there is none."""
        if self.isAttachedToDevice():
            self._match_batch(args, kwargs)
            return
        with paused_collection():  # one pause for both
            if self._program is None:
                self._compile(args, kwargs)
            self._match_batch(args, kwargs)
            if not self.isAttachedToDevice():
                self._attach()

    def _match_batch(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        assert self._arguments is not None
        self._given = self._arguments.matching(args, kwargs)

    def _returned(self, outputs: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> Any:
        assert self._program is not None
        trace = self._program.trace
        for number, id in trace.changed_inputs.items():
            source = torch.from_numpy(np.asarray(outputs[id])).reshape(-1)
            if source.numel() == tensors[number].numel():
                with torch.no_grad():
                    tensors[number].copy_(source.reshape(tensors[number].shape))
        leaves = []
        for output in trace.outputs:
            if isinstance(output, str):
                leaves.append(as_output(outputs[output].copy()))
            else:
                if isinstance(output, torch.Tensor):
                    warnings.warn("A tensor of the host is returned as it is, without a batch", stacklevel=3)
                leaves.append(output)
        for short, (long, _, _) in self._options.anchored_tensors.items():
            if long in outputs:
                self._anchored[short] = torch.from_numpy(outputs[long].copy())
        return rebuilt(trace.structure, leaves)

    def _refresh(self) -> None:
        """Copy values that have changed on the host since the last step to the device."""
        assert self._program is not None
        if self._training:
            if isinstance(self._optimizer, Optimizer) and self._optimizer._uploads:
                self._optimizer._uploads = False
                self._program.set_states(self._optimizer._ipu_state or {})
                self._program.set_scalars(self._rule(self._program.trace))
            return
        other = executor_of(self._user_model)
        if other is None:
            return
        if other._updates != self._seen_updates:
            other.copyWeightsToHostIfNeeded()
            self._seen_updates = other._updates
            self._program.take(self._tensors())
            self._program.upload()
        self._host_is_device()  # what changed since is what the other copied to the host

    def _host_is_device(self) -> None:
        if self._recorded is not None:
            self._recorded.host_is_device()

    # The device

    def isAttachedToDevice(self) -> bool:
        """Whether the executable is loaded on a device."""
        return self._program is not None and self._program.engine is not None

    @paused_collection()
    def _attach(self) -> None:
        assert self._program is not None
        self._program.take(self._tensors())
        self._host_is_device()
        try:
            self._program.attach()
        except EmulatorError as error:
            raise Error(str(error), "poplar_exception") from error

    def attachToDevice(self) -> None:
        """Attach to a device again, with the host's weights."""
        if self._program is None:
            raise Error("Model has not been compiled or has been destroyed.")
        if self._program.engine is not None:
            raise Error("Device is already attached")
        self._attach()

    def detachFromDevice(self) -> None:
        """Read weights and states back, and free the device."""
        if self._program is None:
            raise Error("Model has not been compiled or has been destroyed.")
        if self._program.engine is None:
            raise Error("Device is not attached")
        if self._training or self._host_buffers_stale:
            self._fetch()
        self._program.unload()

    def destroy(self) -> None:
        """Read everything back, free the device, and unwrap the module."""
        if self._program is not None:
            if self._program.engine is not None:
                if self._dirty:
                    self._fetch()
                if isinstance(self._optimizer, Optimizer):
                    self._optimizer._fetch()
                    self._optimizer._state_source = None
                self._program.unload()
            self._program, self._arguments = None, None
        self._dirty = False
        if self._training:
            unwrap(self._user_model)
        elif executor_of(self._user_model) is None:
            withdraw_groupings(self._user_model, all_of_them=True)

    def __del__(self) -> None:
        program = self.__dict__.get("_program")
        if program is not None and program.engine is not None:
            program.engine.close()

    # Weights

    def _weights_are_read(self) -> None:
        if self._dirty:
            self.copyWeightsToHostIfNeeded()

    def _fetch(self) -> None:
        assert self._program is not None
        self._dirty = False  # first, because reading tensors would fetch again
        self._host_buffers_stale = False
        self._program.give(self._tensors())
        self._host_is_device()
        if self._training:
            report_digest(self._user_model)

    def copyWeightsToHost(self) -> None:
        """Copy the device's weights to the module."""
        if self._compiled_program().engine is not None:
            self._fetch()

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Copy the device's weights to the module if they were trained since; return whether they were."""
        if not self._dirty or self._program is None or self._program.engine is None:
            return False
        self._fetch()
        return True

    def copyWeightsToDevice(self) -> None:
        """Overwrite the device's weights with those of the module."""
        program = self._compiled_program()
        program.fetch()
        self._dirty = False
        program.take(self._tensors())
        program.upload()
        self._host_is_device()
        if self._training:
            self._updates += 1

    def copyNamedBuffersToDevice(self) -> None:
        """Copy the buffers that ``updatableNamedBuffers`` names to the device."""
        names = self._options.updatable_named_buffers
        if not names:
            raise Error("No named buffers marked as updatable via updatableNamedBuffers option")
        program = self._compiled_program()
        program.fetch()
        program.take({name: tensor for name, tensor in self._tensors().items() if name in names})
        program.upload()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
        """Load parameters and buffers into the module, and onto the device if it is attached."""
        self._weights_are_read()
        keys = self.model.load_state_dict(state_dict, strict=strict)
        if self.isAttachedToDevice():
            self.copyWeightsToDevice()
        return keys

    def trained_state(self) -> TrainedState:
        """Return the state that a checkpoint saves and restores, while the device is attached."""

        def changed() -> None:
            self._dirty = True

        return TrainedState(self._compiled_program(), changed)

    # The optimiser

    def setOptimizer(self, optimizer: Any) -> None:
        """Use the values of this optimiser from the next step on."""
        check_optimizer(optimizer, self.optimizers)
        if self._program is not None and form_of(optimizer) != self._form:
            raise ValueError(
                f"The optimizer is {form_of(optimizer)} and the one that was compiled {self._form}: type and "
                "accumulator types cannot change, as the executable is already compiled."
            )
        self._form = form_of(optimizer)
        self._warn_of_attributes(optimizer)
        is_new = optimizer is not self._optimizer
        self._optimizer = optimizer
        if self._program is None:
            return
        self._program.set_scalars(self._rule(self._program.trace))
        if isinstance(optimizer, Optimizer):
            optimizer._state_source = self._optimizer_values
            if is_new and optimizer._ipu_state is not None:
                optimizer._uploads = True

    def _warn_of_attributes(self, optimizer: Any) -> None:
        extra = [name for name in unexpected_attributes(optimizer) if name not in self._known_attributes]
        if not extra or self._options.relax_optimizer_checks:
            return
        text = f"Ignoring unexpected group 0 attribute in {type(optimizer).__name__} optimizer: {extra}"
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, stacklevel=3)

    def optimizer_states(self) -> dict[str, torch.Tensor]:
        """Return the states of the optimiser on the device by id. An extension of PopTorch."""
        return {name: torch.from_numpy(np.array(value)) for name, value in self._compiled_program().states().items()}

    def set_optimizer_states(self, states: Mapping[str, torch.Tensor]) -> None:
        """Set states of the optimiser on the device; the others keep their values. An extension of PopTorch."""
        self._compiled_program().set_states(states)

    def _optimizer_values(self) -> tuple[dict[str, Any], dict[str, Any]]:
        program = self._compiled_program()
        states = self.optimizer_states()
        assert program.rule is not None
        scalars = program.scalars(program.rule)
        return states, {id: torch.tensor(value, dtype=torch.float32) for id, value in scalars.items()}

    # Files

    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Write the executable; with ``export_model`` also the module and the optimiser."""
        if self._program is None:
            raise Error("Model has not been compiled or has been destroyed.")
        self._weights_are_read()
        model, optimizer = copy.deepcopy((self._model, self._optimizer)) if export_model else (None, None)
        content = {
            "training": self._training,
            "options": self._options,
            "trace": self._program.trace,
            "arguments": (self._arguments.positional, self._arguments.named) if self._arguments else None,
            "random": self._program.random_state if save_rng_state else None,
            "model": model,
            "optimizer": optimizer,
        }
        write_program(filename, content)
        self._program.saved(filename)

    def compileAndExport(self, filename: str, *args: Any, export_model: bool = True, **kwargs: Any) -> None:
        """Compile, and write the executable."""
        self._compile(args, kwargs)
        self.save(filename, export_model)

    def loadExecutable(self, filename: str) -> None:
        """Load the compiled program from a file instead of compiling."""
        self.restore(read_program(filename))
        self._compiled_program().saved(filename)

    def restore(self, content: Mapping[str, Any]) -> None:
        """Load the compiled program from the content of a file."""
        arguments = content["arguments"]
        self._arguments = Arguments(type(self._model).forward.__get__(self._model), *arguments)
        trace = content["trace"]
        tensors = self._tensors()
        trace.graph.data |= {n: t.detach().cpu().numpy() for n, t in tensors.items() if n in trace.graph.tensors}
        self._finish(trace)
        assert self._program is not None
        if content["random"] is not None:
            self._program.random_state = content["random"]


def _changed_mode(name: str, mode: bool) -> str:
    was, now = ("training", "evaluation") if mode else ("evaluation", "training")
    return f"The module {name or 'of the model'} was compiled in {was} mode and is in {now} mode now"
