"""Compiled module: the program of an executor, and what can be read of it: names, states, times, cycles."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

import torch

from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.executor.device_program import DeviceProgram, TrainedState
from ipu_emu.poptorch.options.options import Options
from ipu_emu.program.executable import ProgramReport

#: Least, largest and average seconds.
Latency = tuple[float, float, float]


class CompiledModule:
    """Base of executors; it has a program once the module is compiled."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._program: DeviceProgram | None = None
        self._anchored: dict[str, torch.Tensor] = {}
        self._compile_seconds: float | None = None

    def _compiled_program(self) -> DeviceProgram:
        if self._program is None:
            raise Error("Model has not been compiled or has been destroyed.")
        return self._program

    def isCompiled(self) -> bool:
        """Whether the module has been compiled."""
        return self._program is not None

    def isAttachedToDevice(self) -> bool:
        """Whether the executable is loaded on a device."""
        return self._program is not None and self._program.engine is not None

    def compilationTime(self) -> datetime.timedelta:
        """Return the duration of tracing and compiling."""
        if self._compile_seconds is None:
            raise Error("Please compile the model before obtaining compilation time.")
        return datetime.timedelta(seconds=self._compile_seconds)

    @property
    def rng_state(self) -> list[int]:
        """The seed and the state of the random numbers."""
        seed, steps = self._compiled_program().random_state
        return [seed, steps]

    @rng_state.setter
    def rng_state(self, state: Sequence[int]) -> None:
        self._compiled_program().random_state = (int(state[0]), int(state[1]) if len(state) > 1 else 0)

    def getTensorNames(self) -> list[str]:
        """Return the ids of all tensors of a step."""
        if self._program is None:
            raise AssertionError("The model must be compiled before its tensor names can be listed")
        return list(self._program.compiled.step.graph.tensors)

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """Return the last value of a tensor that ``Options.anchorTensor`` named."""
        if short_name not in self._anchored:
            raise AssertionError(f"No tensor with name {short_name} found.")
        return self._anchored[short_name]

    def getPerfCounters(self) -> dict[str, list[list[float]]]:
        """Return the seconds at which inputs and outputs of the last call were copied, for each tensor.

        Each has an entry for every micro-batch of every replica; a call copies all of them at once.
        """
        program = self._program
        if program is None:
            return {name: [[]] for name in ("input", "input_complete", "output", "output_complete")}
        steps, copies = program.seconds[-1:], range(self._options.batches)
        read, done = ([sum(step[:part]) for step in steps for _ in copies] for part in (1, 2))
        inputs, outputs = (max(len(tensors), 1) for tensors in (program.trace.inputs, program.trace.outputs))
        return {
            "input": [[0.0] * len(read)] * inputs,
            "input_complete": [read] * inputs,
            "output": [done] * outputs,
            "output_complete": [done] * outputs,
        }

    def _latency(self, *parts: int) -> Latency:
        """The seconds of some parts (0 inputs, 1 device, 2 outputs) of the steps; zeros without steps."""
        program = self._program
        steps = [] if program is None or self._options.enable_synthetic_data else program.seconds
        values = [sum(step[part] for part in parts) for step in steps]
        return (min(values), max(values), sum(values) / len(values)) if values else (0.0, 0.0, 0.0)

    def getLatency(self) -> Latency:
        """Return the least, largest and average seconds of a step, measured on the host."""
        return self._latency(0, 1, 2)

    def getHostIpuLatency(self) -> Latency:
        """As ``getLatency``, for the inputs."""
        return self._latency(0)

    def getComputeLatency(self) -> Latency:
        """As ``getLatency``, for the device."""
        return self._latency(1)

    def getIpuHostLatency(self) -> Latency:
        """As ``getLatency``, for the outputs."""
        return self._latency(2)

    def modelledSeconds(self) -> dict[str, float]:
        """Return the modelled time of a step: busy seconds by kind, and in total. An extension of PopTorch."""
        return self._compiled_program().compiled.modelled.seconds()

    def getReport(self) -> ProgramReport:
        """Return program, memory in bytes, and operations of a step. An extension of PopTorch."""
        return self._compiled_program().compiled.report

    def cycleCount(self) -> int:
        """Return the modelled cycles of a step."""
        if not self._options.log_cycle_count:
            raise Error("Cycle count logging is disabled. Please set option logCycleCount to True to enable.")
        return self._compiled_program().compiled.modelled.cycles()

    def optimizer_states(self) -> dict[str, torch.Tensor]:
        """Return the states of the optimiser on the device by id. An extension of PopTorch."""
        return self._compiled_program().states()

    def set_optimizer_states(self, states: Mapping[str, torch.Tensor]) -> None:
        """Set states of the optimiser on the device; the others keep their values. An extension of PopTorch."""
        self._compiled_program().set_states(states)

    def trained_state(self) -> TrainedState:
        """Return the state that a checkpoint saves and restores, while the device is attached."""
        return TrainedState(self._compiled_program())
