"""Compilation: the model of a session with its options, from the ONNX file to the executable."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import popdist_py
from ipu_emu.compiler.cache.executable_cache import load_executable, save_executable
from ipu_emu.compiler.options import CompileOptions, TrainingOptions
from ipu_emu.compiler.pipeline import CompileState
from ipu_emu.compiler.placement.graph_balance import TooFewOpsError
from ipu_emu.compiler.placement.placement_rules import check_ipus_exist
from ipu_emu.errors import EmulatorError, OpenShapeError
from ipu_emu.graph import Graph, Role
from ipu_emu.graph.body_inputs import Kind
from ipu_emu.graph.dtype import FLOAT, FLOAT16
from ipu_emu.onnx.files import Source
from ipu_emu.onnx.read import OnnxModel, read
from ipu_emu.popart.builder.graph_transformer import GraphTransformer
from ipu_emu.popart.devices.device_manager import PRINTED, DeviceInfo
from ipu_emu.popart.ir.serialised_ir import IrView
from ipu_emu.popart.logger import getLogger
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.options.input_settings import InputShapeInfo
from ipu_emu.popart.session.option_rules import check_combination
from ipu_emu.popart.session.popart_limits import check_arithmetic, check_limits, check_step
from ipu_emu.popart.types.enums import DeviceType
from ipu_emu.program.executable import Executable
from ipu_emu.session.compiled_program import CompiledProgram, Target, compile_program, key_of, step_graph
from ipu_emu.session.memory_advice import MemoryAdvice, MemoryRequest
from ipu_emu.session.memory_remedies import RemedyKind
from ipu_emu.session.options.compile_options import cache_folder, compile_options, with_streams
from ipu_emu.session.options.option_enums import TileSet, VirtualGraphMode
from ipu_emu.session.options.patterns import Patterns
from ipu_emu.session.options.session_options import SessionOptions

#: The name of an executable that is saved in a folder.
_FILE = "executable.popef"
#: Changes that may save memory, as options of a session.
_WORDS = {
    RemedyKind.STATES_SHARDED: (
        "optimizerStateTensorLocationSettings.location.replicatedTensorSharding = ReplicatedTensorSharding.On"
    ),
    RemedyKind.STATES_OFF_CHIP: "optimizerStateTensorLocationSettings.location.storage = TensorStorage.OffChip",
    RemedyKind.ACCUMULATORS_OFF_CHIP: "accumulatorTensorLocationSettings.location.storage = TensorStorage.OffChip",
    RemedyKind.ACTIVATIONS_OFF_CHIP: "activationTensorLocationSettings.location.storage = TensorStorage.OffChip",
    RemedyKind.WEIGHTS_OFF_CHIP: "weightTensorLocationSettings.location.storage = TensorStorage.OffChip",
    RemedyKind.MICRO_BATCH: "a model for micro-batches of 1/{divisor} and accumulationFactor = {factor}",
    RemedyKind.FLOAT16: "a model after GraphTransformer(model).convertFloatsToHalfs()",
    RemedyKind.RECOMPUTE: "autoRecomputation = RecomputationType.Standard",
}


class Compilation:
    """Compiles a session's ``model``; ``step`` is the compiler's state once the graph of a step is complete."""

    def __init__(
        self,
        model: Source,
        flow: DataFlow,
        device: DeviceInfo,
        shapes: InputShapeInfo | None,
        options: SessionOptions,
        training: TrainingOptions | None = None,
    ) -> None:
        self.options, self.flow, self.device = options, flow, device
        options.check(training=training is not None)
        _check_distributed(device, options)
        known = {} if shapes is None else {id: info.described for id, info in shapes.infos.items()}
        self.source = _read(model, options, known)
        self.model = self.source.graph
        check_limits(self.model, options, training=training is not None)
        ipus = self.target.ipus
        check_combination(self.model, options, flow, training=training is not None, ipus=ipus)
        anchors = [flow.art(id).anchor(id) for id in flow.anchors()]
        properties = self.source.properties
        self.step = self._step(
            compile_options(options, flow.batchesPerStep(), anchors, properties, ipus=ipus, training=training)
        )
        check_step(self.model, self.step.graph, flow.anchors())

    def _step(self, options: CompileOptions) -> CompileState:
        try:
            return step_graph(self.model, options)
        except TooFewOpsError as error:
            count = self.target.ipus
            splits = min(len(self.model.ops), count)
            raise EmulatorError(
                f"[AutoVirtualGraph] Couldn't find enough splits for {count} IPUs. Only found {splits}. "
                f"{error.args[0]}"
            ) from None

    @property
    def target(self) -> Target:
        """The IPUs of the device, and the replicas on them."""
        options, local = self.options, self.options.localReplicas()
        ipus = max(1, self.device.usedIpus // local)
        offset = options.globalReplicaOffset if options.enableDistributedReplicatedGraphs else 0
        return Target(
            self.device.device, ipus, local, offset, options.getGlobalReplicationFactor(), options.numIOTiles
        )

    @property
    def graph(self) -> Graph:
        """The graph of a step."""
        return self.step.graph

    def anchor_arrays(self) -> dict[str, NDArray[Any]]:
        """Return arrays for the anchors of one step, by tensor id."""
        step, arrays = self.compile_options().step, {}
        for anchor in self.step.anchors:
            if step.batches % anchor.period:
                raise RuntimeError("Invalid anchor period, is not divisble by batchesPerStep")
            tensor = self.graph.tensor(anchor.tensor)
            arrays[anchor.tensor] = np.empty(step.shape(anchor, tensor), tensor.dtype.numpy)
        return arrays

    def prepared(self, loaded: Executable | None = None) -> CompiledProgram:
        """Compile, or use the executable that was ``loaded``; raise EmulatorError if it does not fit the device."""
        self.options.check_counts()
        check_arithmetic(self.model)
        _check_device(self.device, self.options, self.model, self.target.ipus)
        _check_io_tiles(self.device, self.options, self._on_io_tiles())
        more = "poprun-py --ipus-per-replica {ipus}" if popdist_py.isPopdistEnvSet() else "{ipus} IPUs per replica"
        words = _WORDS | {RemedyKind.MORE_IPUS: f"virtualGraphMode = VirtualGraphMode.Auto with {more}"}
        warn = getLogger("session").warn
        return compile_program(
            self.final_step,
            self.target,
            MemoryAdvice(
                words,
                lambda request: CompileState(self._model_of(request), request.options),
                report=lambda text: warn(f"the model does not fit; trying {text}"),
            ),
            cache=cache_folder(self.options.cacheFolder()),
            loaded=loaded,
            forward=bool(self.options.createImplicitPipeliningFwdOnlyProgram),
        )

    def _model_of(self, request: MemoryRequest) -> Graph:
        if not request.halves and request.divisor == 1:
            return self.model
        template = self.source.template
        proto = template.serialised(template.initializers(self.model.data))
        inputs = self.model.with_role(Role.INPUT)
        if request.halves:
            transformer = GraphTransformer(proto)
            transformer.convertFloatsToHalfs()
            proto = transformer.getModelProto()
        shapes = {
            tensor.id: (
                FLOAT16 if request.halves and tensor.dtype is FLOAT else tensor.dtype,
                (tensor.shape[0] // request.divisor, *tensor.shape[1:]) if tensor.shape else (),
            )
            for tensor in inputs
        }
        return _read(proto, self.options, shapes).graph

    @property
    def final_step(self) -> CompileState:
        """The graph of a step with all options of the compiler."""
        return replace(self.step, options=self.compile_options())

    def ir_view(self, patterns: Patterns) -> IrView:
        """Return the options that determine what the printed IR contains."""
        options = self.options
        return IrView(
            name=self.model.name,
            placed=options.usesVirtualGraphs(),
            pipelined=bool(options.enablePipelining),
            explicit=options.pipelinesExplicitly(),
            explicit_recomputation=bool(options.explicitRecomputation),
            host_copies=bool(options.useHostCopyOps),
            phased=options.virtualGraphMode is VirtualGraphMode.ExecutionPhases,
            accumulates=bool(options.enableGradientAccumulation),
            in_place=patterns.isPatternEnabled("InPlace"),
            outline_threshold=float(options.outlineThreshold) if options.enableOutlining else None,
        )

    def key(self) -> str:
        """The key of the executable in the cache."""
        return key_of(self.final_step)

    def save(self, executable: Executable, path: str, values: Mapping[str, NDArray[Any]]) -> str:
        """Write an executable with these ``values`` of its variables; return its file, which may be in the folder."""
        file = _file_in(path)
        try:
            os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
        except OSError as error:
            raise EmulatorError(f"Cannot make the folder of '{file}': {error.strerror}; choose another") from error
        save_executable(executable, file, self.key(), values)
        return file

    def load(self, path: str) -> tuple[str, Executable]:
        """Return the file and the executable that ``save`` wrote; raise EmulatorError for another model."""
        file = _file_in(path)
        return file, load_executable(file, self.key())

    def compile_options(self) -> CompileOptions:
        """Return all options of the compiler; raise EmulatorError for invalid values."""
        return with_streams(
            self.step.options,
            self.options,
            self.flow.batchesPerStep(),
            self.source.properties,
            [tensor.id for tensor in self.graph.with_role(Role.INPUT)],
            sync=self.device.syncPattern.name,
        )

    def _on_io_tiles(self) -> list[str]:
        """Inputs and anchors that I/O tiles exchange with the host."""
        anchors = [id for id in self.flow.anchors() if self.flow.art(id).tileSet() is TileSet.IO]
        return [*self.source.properties.on_io_tiles, *anchors]


def _file_in(path: str) -> str:
    path = os.path.expanduser(path)
    return os.path.join(path, _FILE) if os.path.isdir(path) else path


def _read(model: Source, options: SessionOptions, known: Mapping[str, Kind]) -> OnnxModel:
    """Read the model for this number of replicas; ``known`` gives types and shapes of inputs that it leaves open."""
    replicas, supported = options.getGlobalReplicationFactor(), bool(options.enableSupportedDataTypeCasting)
    try:
        return read(model, replicas=replicas, supported_types=supported, inputs=known)
    except OpenShapeError as error:
        sizes = error.sizes
        raise EmulatorError(
            f"Input tensor '{error.input}' must be specified in InputShapeInfo, as it has shape "
            f"[{' '.join(map(str, sizes))}], which uses an unknown value "
            f"'{next(size for size in sizes if isinstance(size, str))}'."
        ) from None


#: The fewest I/O tiles that reach all of the host exchange.
_LEAST_IO_TILES = 32
_HARDWARE = (DeviceType.Ipu, DeviceType.OfflineIpu)


def _check_distributed(device: DeviceInfo, options: SessionOptions) -> None:
    """Raise EmulatorError for replicas in several instances on a device that cannot be distributed."""
    if options.enableDistributedReplicatedGraphs and device.type not in _HARDWARE:
        raise EmulatorError(
            "Only IPU Hardware devices supported with distributed replicated graphs. Unsupported device type "
            f"{PRINTED[device.type]}"
        )


def _check_device(device: DeviceInfo, options: SessionOptions, model: Graph, ipus_per_replica: int) -> None:
    """Raise EmulatorError if the replicas and virtual graphs do not fit the IPUs."""
    ipus, replicas = device.usedIpus, options.localReplicas()
    if device.type is DeviceType.Cpu:
        return
    if ipus % replicas:
        raise EmulatorError("For replicated graphs, the number of IPUs must be divisible by the replication factor.")
    if options.usesVirtualGraphs():
        check_ipus_exist(model, ipus_per_replica)
    elif ipus > 1 and ipus != replicas:
        raise EmulatorError(
            f"If virtual graphs are disabled, the replicated graph count ({replicas}) needs to be equal to the "
            f"number of IPUs ({ipus})"
        )


def _check_io_tiles(device: DeviceInfo, options: SessionOptions, tensors: Sequence[str]) -> None:
    """Raise EmulatorError if ``numIOTiles`` is invalid, or zero although ``tensors`` need I/O tiles."""
    count, tiles = options.numIOTiles, device.tilesPerIPU
    allowed = f"an even number from {_LEAST_IO_TILES} to {tiles - 2}"
    if count and (count % 2 or not _LEAST_IO_TILES <= count < tiles):
        raise EmulatorError(f"numIOTiles is {count}, and an IPU of this device has {tiles} tiles; use {allowed}")
    if tensors and not count:
        raise EmulatorError(
            f"Tensor '{tensors[0]}' should be exchanged by I/O tiles (TileSet.IO), but numIOTiles is 0; set it to "
            f"{allowed}"
        )


def check_sync(device: DeviceInfo, executable: Executable) -> None:
    """Raise EmulatorError for an executable that was compiled for another sync pattern."""
    if executable.sync != device.syncPattern.name:
        raise EmulatorError(
            f"The executable was compiled for the sync pattern {executable.sync}, but the device has "
            f"{device.syncPattern.name}; acquire the device with SyncPattern.{executable.sync}, or compile again"
        )
