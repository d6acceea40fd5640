"""Options: how a model is compiled and run."""

from __future__ import annotations

import copy
import json
import os
import warnings
from typing import Any

import torch

from ipu_emu.poptorch import enums
from ipu_emu.poptorch.enums import CommGroupType, ConnectionType, OutputMode, SyncPattern
from ipu_emu.poptorch.errors import ConfigFileError
from ipu_emu.poptorch.options import strategies
from ipu_emu.poptorch.options.categories import (
    _DistributedOptions,
    _JitOptions,
    _PopartOptions,
    _PrecisionOptions,
    _TrainingOptions,
)
from ipu_emu.poptorch.options.option_group import OptionGroup, checked, of_kind, positive
from ipu_emu.poptorch.options.strategies import PipelinedExecution, Stage, Strategy
from ipu_emu.poptorch.options.tensor_locations import TensorLocationSettings, _TensorLocationOptions
from popdist_py.files.bounded_read import open_given


class Options(OptionGroup):
    """All options; setters return the options, so that they can be chained."""

    without_effect = frozenset(
        ["available_memory_proportion", "ipu_id", "log_dir", "max_repeat_logs", "model_name", "stable_norm"]
    )

    def __init__(self) -> None:
        super().__init__(
            device_iterations=1,
            replication_factor=1,
            input_group_size=1,
            input_cgt=CommGroupType.Consecutive,
            output_mode=OutputMode.Default,
            output_return_period=1,
            anchored_tensors={},
            auto_round_num_ipus=False,
            available_memory_proportion={},
            random_seed=None,
            executable_cache=None,
            use_model=None,
            ipu_id=None,
            ipu_version=2,
            connection_type=ConnectionType.Always,
            sync_pattern=SyncPattern.Full,
            broadcast_buffers=True,
            enable_synthetic_data=False,
            log_cycle_count=False,
            profile_dir=None,
            stable_norm=False,
            model_name=None,
            log_dir=".",
            max_repeat_logs=4,
            module_namescope_enabled=True,
            updatable_named_buffers=[],
            show_compilation_progress_bar=True,
            relax_optimizer_checks=False,
        )
        self._execution_strategy: Strategy = PipelinedExecution()
        self._training, self._precision = _TrainingOptions(), _PrecisionOptions()
        self._jit, self._distributed = _JitOptions(), _DistributedOptions()
        self._tensor_locations, self._popart = _TensorLocationOptions(), _PopartOptions()
        folder = os.environ.get("POPTORCH_CACHE_DIR")
        if folder:
            self.enableExecutableCaching(folder)
        defaults = os.environ.get("POPTORCH_DEFAULT_OPTIONS")
        if defaults:
            self.from_json(defaults)

    # Categories

    @property
    def Training(self) -> _TrainingOptions:
        """Options of training."""
        return self._training

    @property
    def Precision(self) -> _PrecisionOptions:
        """Options of element types and rounding."""
        return self._precision

    @property
    def Jit(self) -> _JitOptions:
        """Options of tracing; deprecated."""
        return self._jit

    @property
    def Distributed(self) -> _DistributedOptions:
        """The index of this process, and the number of processes."""
        return self._distributed

    @property
    def TensorLocations(self) -> _TensorLocationOptions:
        """Locations of weights, states, accumulators and activations."""
        return self._tensor_locations

    @property
    def _Popart(self) -> _PopartOptions:
        return self._popart

    # A step

    def deviceIterations(self, device_iterations: int) -> Options:
        """Do this many weight updates, or inferences, in one call."""
        return self.set(device_iterations=positive("device_iterations", device_iterations))

    def replicationFactor(self, replication_factor: int) -> Options:
        """Run this many replicas in this process."""
        return self.set(replication_factor=positive("replication_factor", replication_factor))

    def inputReplicaGrouping(self, input_group_size: int, input_cgt: CommGroupType) -> Options:
        """Give the replicas of a group the same inputs."""
        if input_cgt is CommGroupType.NoGrouping:
            input_group_size, input_cgt = 1, CommGroupType.Consecutive
        checked("input_cgt", input_cgt, CommGroupType)
        positive("input_group_size", input_group_size)
        if input_cgt is CommGroupType.All:
            raise ValueError("CommGroupType.All is not supported for inputReplicaGrouping; use Consecutive")
        if self.replication_factor % input_group_size:
            raise ValueError(
                f"The group size {input_group_size} does not divide the replication factor "
                f"{self.replication_factor}; set replicationFactor first"
            )
        return self.set(input_group_size=input_group_size, input_cgt=input_cgt)

    def outputMode(self, output_mode: OutputMode, output_return_period: int | None = None) -> Options:
        """Choose which outputs the host receives."""
        if checked("output_mode", output_mode, OutputMode) is OutputMode.EveryN:
            if not output_return_period or output_return_period <= 0:
                raise AssertionError("EveryN output mode requires the output return period to be greater than 0")
        else:
            output_return_period = 1
        return self.set(output_mode=output_mode, output_return_period=output_return_period)

    def defaultOutputMode(self) -> bool:
        """Whether no output mode was chosen."""
        return bool(self.output_mode is OutputMode.Default)

    def anchorTensor(
        self,
        short_name: str,
        long_name: str,
        output_mode: OutputMode | None = None,
        output_return_period: int = 1,
    ) -> None:
        """Anchor one more tensor, for ``getAnchoredTensor(short_name)``."""
        self.checkIsFrozen()
        if output_mode is OutputMode.EveryN and output_return_period <= 0:
            raise AssertionError("EveryN output mode requires the output return period to be greater than 0")
        self._values["anchored_tensors"] = self.anchored_tensors | {
            short_name: (long_name, output_mode, output_return_period)
        }

    # Execution

    def setExecutionStrategy(self, strategy: Strategy) -> Options:
        """Choose how blocks run on IPUs."""
        self.checkIsFrozen()
        if not isinstance(strategy, Strategy):
            raise AssertionError(
                f"Unexpected type {type(strategy)} for option execution_strategy. Expected a strategy"
            )
        self._execution_strategy = strategy
        return self

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Options:
        """Round the number of reserved IPUs up to a power of two."""
        return self.set(auto_round_num_ipus=checked("auto_round_num_ipus", auto_round_num_ipus, bool))

    def setAvailableMemoryProportion(self, available_memory_proportion: dict[str, float]) -> Options:
        """Accept the memory for convolutions and products, which does not affect results."""
        checked("available_memory_proportion", available_memory_proportion, dict)
        for key in available_memory_proportion:
            if not str(key).startswith("IPU"):
                raise AssertionError(f"Expected a key of the form IPU0, IPU1, ..., found {key}")
        return self.set(available_memory_proportion=dict(available_memory_proportion))

    def randomSeed(self, random_seed: int) -> Options:
        """Set the seed of the device and of PyTorch."""
        checked("random_seed", random_seed, int)
        torch.manual_seed(random_seed)
        return self.set(random_seed=random_seed)

    def enableExecutableCaching(self, path: str | None) -> Options:
        """Keep executables in a folder."""
        return self.set(
            executable_cache=None if path is None else checked("executable_cache", path, str, os.PathLike)
        )

    def useIpuModel(self, use_model: bool) -> Options:
        """Run on an IPU Model, which has any number of IPUs and does not support replication."""
        return self.set(use_model=checked("use_model", use_model, bool))

    def useIpuId(self, ipu_id: int) -> Options:
        """Choose a device by its id."""
        return self.set(ipu_id=checked("ipu_id", ipu_id, int))

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Options:
        """Compile only, for an offline device."""
        version = checked("ipu_version", ipu_version, int)
        return self.set(connection_type=ConnectionType.Never, ipu_version=version)

    def connectionType(self, connection_type: ConnectionType) -> Options:
        """Choose when the device is attached."""
        return self.set(connection_type=of_kind(connection_type, ConnectionType))

    def syncPattern(self, sync_pattern: SyncPattern) -> Options:
        """Accept a sync pattern, which does not affect results."""
        return self.set(sync_pattern=of_kind(sync_pattern, SyncPattern))

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Options:
        """Keep buffers equal on all replicas, so that forward cannot change them."""
        return self.set(broadcast_buffers=checked("broadcast_buffers", broadcast_buffers, bool))

    def enableSyntheticData(self, enable_synthetic_data: bool) -> Options:
        """Compute on random data that are made on the device."""
        return self.set(enable_synthetic_data=checked("enable_synthetic_data", enable_synthetic_data, bool))

    def logCycleCount(self, log_cycle_count: bool) -> Options:
        """Model the cycles of a step."""
        return self.set(log_cycle_count=checked("log_cycle_count", log_cycle_count, bool))

    def enableProfiling(self, profile_dir: str | None = None) -> Options:
        """Accept a folder for reports, without effect."""
        folder = "." if profile_dir is None else checked("profile_dir", profile_dir, str, os.PathLike)
        warnings.warn(
            "enableProfiling has no effect: the emulator writes no profile.pop. Options.logCycleCount(True) and "
            "cycleCount() give the modelled cycles of a step",
            stacklevel=2,
        )
        return self.set(profile_dir=folder)

    def enableStableNorm(self, enabled: bool) -> Options:
        """Accepted; normalisations are computed in the stable way."""
        return self.set(stable_norm=checked("stable_norm", enabled, bool))

    def modelName(self, name: str) -> Options:
        """Name the model in reports."""
        return self.set(model_name=checked("model_name", name, str))

    def logDir(self, log_dir: str) -> Options:
        """Accept a folder for logs, without effect."""
        return self.set(log_dir=checked("log_dir", log_dir, str))

    def maxRepeatLogs(self, max_lines: int | None) -> Options:
        """Accept the number of repetitions of a logged line, without effect."""
        return self.set(max_repeat_logs=None if max_lines is None else checked("max_repeat_logs", max_lines, int))

    def disableModuleNamescope(self) -> Options:
        """Omit the paths of modules from tensor names."""
        return self.set(module_namescope_enabled=False)

    def updatableNamedBuffers(self, buffers: list[str]) -> Options:
        """Set the names of the buffers that ``copyNamedBuffersToDevice`` copies."""
        names = list(checked("updatable_named_buffers", buffers, list, tuple))
        return self.set(updatable_named_buffers=[checked("updatable_named_buffers", buffer, str) for buffer in names])

    def showCompilationProgressBar(self, show: bool = True) -> Options:
        """Show the progress of the compilation."""
        return self.set(show_compilation_progress_bar=checked("show_compilation_progress_bar", show, bool))

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Options:
        """Do not warn of attributes of optimisers that have no effect."""
        return self.set(relax_optimizer_checks=checked("relax_optimizer_checks", relax, bool))

    # Files and copies

    def loadFromFile(self, filepath: str) -> Options:
        """Apply the options in a file, one a line, such as ``deviceIterations(4)``."""
        names = {name: getattr(enums, name) for name in enums.__all__}
        names |= {"poptorch": _Names(), "torch": torch, "options": self, "Stage": Stage}
        with open(open_given(filepath)) as file:
            lines = file.read().splitlines()
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            try:
                exec(compile(f"options.{text}", filepath, "exec"), names)
            except SyntaxError as error:
                raise ConfigFileError(f"{filepath}, line {number}: '{text}' is not an option: {error.msg}") from error
        return self

    def from_json(self, string: str) -> Options:
        """Apply options such as ``{"deviceIterations": 4, "Training.gradientAccumulation": 8}``."""
        for name, value in json.loads(string).items():
            target: Any = self
            for part in name.split("."):
                target = getattr(target, part)
            arguments = value if isinstance(value, list) else [value]
            target(*(_enum(argument) for argument in arguments))
        return self

    def clone(self) -> Options:
        """Return a copy that can be changed."""
        return copy.deepcopy(self)

    def __deepcopy__(self, memory: dict[int, Any]) -> Options:
        copied = self.__class__.__new__(self.__class__)
        memory[id(self)] = copied
        for name, value in self.__dict__.items():
            object.__setattr__(copied, name, copy.deepcopy(value, memory))
        copied._freeze(False)
        return copied

    def toDict(self) -> dict[str, Any]:
        """Return all values; raise AssertionError before an output mode was chosen."""
        if self.defaultOutputMode():
            raise AssertionError("The output mode must not be OutputMode.Default; choose one with outputMode")
        values = dict(self._values)
        for group in self._groups().values():
            values |= group.toDict()
        return values

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, execution_strategy: {type(self._execution_strategy).__name__})"

    # Derived values

    @property
    def batches(self) -> int:
        """The micro-batches of one call: D A R / G."""
        replicas = int(self.replication_factor) // int(self.input_group_size)
        return int(self.device_iterations) * int(self.Training.gradient_accumulation) * replicas


class _Names:
    """The names that an options file may use as ``poptorch.X``."""

    def __getattr__(self, name: str) -> Any:
        if name == "TensorLocationSettings":
            return TensorLocationSettings
        return getattr(strategies if name in strategies.__all__ else enums, name)


def _enum(value: Any) -> Any:
    if isinstance(value, str) and "." in value:
        kind, _, member = value.partition(".")
        enum = getattr(enums, kind, None)
        if enum is not None:
            return enum[member]
    return value
