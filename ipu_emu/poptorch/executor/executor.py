"""PoplarExecutor: a module that is traced and compiled at its first call, and runs on emulated IPUs."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ipu_emu.errors import EmulatorError
from ipu_emu.hostio.weights_digest import report_digest
from ipu_emu.poptorch.blocks import module_repr
from ipu_emu.poptorch.enums import ConnectionType, MeanReductionStrategy, OutputMode
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.executor.arguments import Arguments, cleaned, first_micro_batch
from ipu_emu.poptorch.executor.checks import check_buffers, check_inference, check_overlap, checked_options
from ipu_emu.poptorch.executor.compiled_module import CompiledModule
from ipu_emu.poptorch.executor.device_program import DeviceProgram, tensors_of
from ipu_emu.poptorch.executor.hooks import compilation
from ipu_emu.poptorch.executor.paused_collection import paused_collection
from ipu_emu.poptorch.executor.recorded_state import RecordedState
from ipu_emu.poptorch.executor.saved_program import read_program, write_program
from ipu_emu.poptorch.executor.training_optimiser import TrainingOptimiser
from ipu_emu.poptorch.executor.wrapped_modules import executor_of, offer_groupings, unwrap, withdraw_groupings, wrap
from ipu_emu.poptorch.optim.update_rules import OF_POPTORCH, maximizes
from ipu_emu.poptorch.options.options import Options
from ipu_emu.poptorch.tracing.trace import ModuleTrace, trace_module


class PoplarExecutor(CompiledModule):
    """The result of ``trainingModel`` and ``inferenceModel``."""

    #: The types of optimisers that train the module.
    optimisers: tuple[type, ...] = OF_POPTORCH

    def __init__(self, model: Any, options: Options | None, *, training: bool, optimizer: Any = None) -> None:
        while isinstance(model, PoplarExecutor):
            model = model.model
        checked = checked_options(model, options, training=training)
        checked._freeze()
        super().__init__(checked.clone())
        if self._options.defaultOutputMode():
            self._options.set(output_mode=OutputMode.Final if training else OutputMode.All)
        self._training = training
        self._user_model = model
        self._optimiser: TrainingOptimiser | None = None
        self._arguments: Arguments | None = None
        self._updates = 0
        self._seen_updates = 0
        self._warned: set[str] = set()
        self._modes: list[tuple[str, torch.nn.Module, bool]] = []
        self._recorded: RecordedState | None = None
        if training:
            self._optimiser = TrainingOptimiser(optimizer, self.optimisers, model.parameters(), self._options)
            if self._optimiser.accumulates_in_half:
                running = MeanReductionStrategy.Running
                self._options.Training.setMeanAccumulationAndReplicationReductionStrategy(running)
        else:
            check_inference(self._options)
        self._model = copy.copy(model)
        if training:
            self._model.__dict__.pop("_poptorch_executor", None)
            wrap(model, self)
        else:
            offer_groupings(model)
        self._options._freeze()

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
        if self._optimiser is not None and maximizes(self._optimiser.current):
            trace.negate_loss()
        check_buffers(self._model, trace.changed_buffers, self._options)
        self._finish(trace)
        if executor_of(self._user_model) is None:
            withdraw_groupings(self._user_model, all_of_them=False)
        self._compile_seconds = time.perf_counter() - started

    def _finish(self, trace: ModuleTrace) -> None:
        optimiser = self._optimiser
        rule = None if optimiser is None else optimiser.rule(self._model, trace)
        program = DeviceProgram(self._model, trace, self._options, rule)
        check_overlap(trace.overlaps, self._options, program.compiled.target.ipus)
        self._program = program
        if optimiser is not None:
            optimiser.connect(None if self._offline else program)
        elif other := executor_of(self._user_model):
            self._seen_updates = other._updates

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
        tensors = self._start(args, kwargs)
        program = self._compiled_program()
        for name, module, mode in self._modes:
            if module.training is not mode:
                self._mode_has_changed(name, mode)
                break
        self._refresh(program)
        if self._recorded is not None:
            for text in self._recorded.changes():
                self._warn_of_change(text)
        outputs = program.run([cleaned(tensor, f"{number}") for number, tensor in enumerate(tensors)])
        self._updates += 1
        for short, (long, _, _) in self._options.anchored_tensors.items():
            if long in outputs:
                self._anchored[short] = torch.from_numpy(outputs[long].copy())
        return program.result(outputs, tensors)

    def _mode_has_changed(self, name: str, mode: bool) -> None:
        """Warn, once, that the mode of a module is not the one that was compiled."""
        was, now = ("training", "evaluation") if mode else ("evaluation", "training")
        self._warn_of_change(
            f"The module {name or 'of the model'} was compiled in {was} mode and is in {now} mode now"
        )

    def _warn_of_change(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(f"{text}; the compiled program runs as before", stacklevel=4)

    def _start(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Compile for the first arguments, match later ones with them, and attach to a device if there is none."""
        if self.isAttachedToDevice():
            return self._matching(args, kwargs)
        with paused_collection():  # one pause for both
            if self._program is None:
                self._compile(args, kwargs)
            tensors = self._matching(args, kwargs)
            self._attach()
        return tensors

    def _matching(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        assert self._arguments is not None
        return self._arguments.matching(args, kwargs)

    def _refresh(self, program: DeviceProgram) -> None:
        """Copy values that have changed on the host since the last step to the device."""
        if self._optimiser is not None:
            self._optimiser.upload(program)
            return
        other = executor_of(self._user_model)
        if other is None:
            return
        if other._updates != self._seen_updates:
            other.copyWeightsToHostIfNeeded()
            self._seen_updates = other._updates
            program.take()
            program.upload()
        self._host_is_device()  # what changed since is what the other copied to the host

    def _host_is_device(self) -> None:
        if self._recorded is not None:
            self._recorded.host_is_device()

    # The device

    @paused_collection()
    def _attach(self) -> None:
        program = self._compiled_program()
        program.take()
        self._host_is_device()
        try:
            program.attach()
        except EmulatorError as error:
            raise Error(str(error), "poplar_exception") from error

    def attachToDevice(self) -> None:
        """Attach to a device again, with the host's weights."""
        if self._compiled_program().engine is not None:
            raise Error("Device is already attached")
        self._attach()

    def detachFromDevice(self) -> None:
        """Read weights and states back, and free the device."""
        program = self._compiled_program()
        if program.engine is None:
            raise Error("Device is not attached")
        if self._training or program.has_new_buffers:
            self._fetch(program)
        program.unload()

    def destroy(self) -> None:
        """Read everything back, free the device, and unwrap the module."""
        if self._program is not None:
            self.copyWeightsToHostIfNeeded()
            if self._optimiser is not None:
                self._optimiser.disconnect()
            self._program.unload()
            self._program, self._arguments = None, None
        if self._training:
            unwrap(self._user_model)
        elif executor_of(self._user_model) is None:
            withdraw_groupings(self._user_model, all_of_them=True)

    def __del__(self) -> None:
        program = self.__dict__.get("_program")
        if program is not None and program.engine is not None:
            program.engine.close()

    # Weights

    def _fetch(self, program: DeviceProgram) -> None:
        program.give()
        self._host_is_device()
        if self._training:
            report_digest(self._user_model)

    def copyWeightsToHost(self) -> None:
        """Copy the device's weights to the module."""
        program = self._compiled_program()
        if program.engine is not None:
            self._fetch(program)

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Copy the device's weights to the module if they were trained since; return whether they were."""
        program = self._program
        if program is None or program.engine is None or not program.is_trained:
            return False
        self._fetch(program)
        return True

    def copyWeightsToDevice(self) -> None:
        """Overwrite the device's weights with those of the module."""
        program = self._compiled_program()
        program.fetch()
        program.is_trained = False
        program.take()
        program.upload()
        self._host_is_device()
        self._updates += 1

    def copyNamedBuffersToDevice(self) -> None:
        """Copy the buffers that ``updatableNamedBuffers`` names to the device."""
        names = self._options.updatable_named_buffers
        if not names:
            raise Error("No named buffers marked as updatable via updatableNamedBuffers option")
        program = self._compiled_program()
        program.fetch()
        program.take(names)
        program.upload()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
        """Load parameters and buffers into the module, and onto the device if it is attached."""
        self.copyWeightsToHostIfNeeded()
        keys = self.model.load_state_dict(state_dict, strict=strict)
        if self.isAttachedToDevice():
            self.copyWeightsToDevice()
        return keys

    def setOptimizer(self, optimizer: Any) -> None:
        """Use the values of this optimiser from the next step on."""
        if self._optimiser is None:
            raise Error("setOptimizer is for training, and this is an inferenceModel; create it with trainingModel")
        self._optimiser.replace(optimizer, self._program)

    # Files

    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Write the executable; with ``export_model`` also the module and the optimiser."""
        program = self._compiled_program()
        self.copyWeightsToHostIfNeeded()
        optimiser = None if self._optimiser is None else self._optimiser.current
        model, optimiser = copy.deepcopy((self._model, optimiser)) if export_model else (None, None)
        content = {
            "training": self._training,
            "options": self._options,
            "trace": program.trace,
            "arguments": (self._arguments.positional, self._arguments.named) if self._arguments else None,
            "random": program.random_state if save_rng_state else None,
            "model": model,
            "optimizer": optimiser,
        }
        write_program(filename, content)
        program.saved(filename)

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
        tensors = tensors_of(self._model)
        trace.graph.data |= {n: t.detach().cpu().numpy() for n, t in tensors.items() if n in trace.graph.tensors}
        self._finish(trace)
        if content["random"] is not None:
            self._compiled_program().random_state = content["random"]


def trainingModel(model: Any, options: Options | None = None, optimizer: Any = None) -> PoplarExecutor:
    """Wrap ``model``, whose forward computes a loss, to train on emulated IPUs."""
    return PoplarExecutor(model, options, training=True, optimizer=optimizer)


def inferenceModel(model: Any, options: Options | None = None) -> PoplarExecutor:
    """Wrap ``model`` to run on emulated IPUs."""
    return PoplarExecutor(model, options, training=False)


def load(filename: str, edit_opts_fn: Callable[[Options], None] | None = None) -> PoplarExecutor:
    """Return the module in a file, wrapped, with its program; loaded wrappers are not linked to others."""
    content = read_program(filename)
    if content["model"] is None:
        raise AssertionError(
            f"{filename} is a valid PopTorch file but was created with 'export_model=False', which means you need to "
            "re-create the model using inferenceModel or trainingModel, and then call loadExecutable"
        )
    options = content["options"].clone()
    options.connectionType(ConnectionType.Always)
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    executor = PoplarExecutor(content["model"], options, training=content["training"], optimizer=content["optimizer"])
    executor.restore(content)
    return executor
