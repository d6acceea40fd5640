"""Session: a model compiled for a device, with its data."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import popdist_py
from ipu_emu.engine import Engine, Replicas
from ipu_emu.errors import EmulatorError, SessionError
from ipu_emu.graph import Graph, Role, Tensor
from ipu_emu.graph.onnx_model import from_model, initializers_of, load_model, metadata_of, opset_of, to_model
from ipu_emu.hostio import SyntheticFeed, check_sizes
from ipu_emu.ops import append
from ipu_emu.ops.random import has_key
from ipu_emu.popart.builder import STREAM_MODE
from ipu_emu.popart.caching import cache_folder
from ipu_emu.popart.dataflow import DataFlow
from ipu_emu.popart.devices import DeviceInfo
from ipu_emu.popart.enums import DeviceConnectionType, DeviceType, SyntheticDataMode
from ipu_emu.popart.options import SessionOptions
from ipu_emu.popart.patterns import InputShapeInfo
from ipu_emu.popart.placement import check_placement, check_virtual_graphs_fit
from ipu_emu.popart.report import Cycles, Report, serialised
from ipu_emu.popart.stepio import PyStepIO, PyStepIOCallback, PyWeightsIO
from ipu_emu.popart.tensorinfo import TensorInfo
from ipu_emu.popart.variables import grouped, settings_of
from ipu_emu.popart.weights import Weights
from ipu_emu.program import Executable
from ipu_emu.program.anchors import StepShape
from ipu_emu.program.cache import cache_key, compiled_once, load_executable, save_executable, with_variables
from ipu_emu.program.lowering import lower
from ipu_emu.transforms.replication import tell_replicas
from ipu_emu.transforms.training import Gradient

__all__ = ["Model", "Session"]

Model = bytes | str | os.PathLike[str]


class Session:
    """What both kinds of session do."""

    _training = False

    def __init__(
        self,
        fnModel: Model,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None,
        userOptions: SessionOptions | None,
        name: str,
    ) -> None:
        self._options = deepcopy(userOptions) if userOptions is not None else SessionOptions()
        self.dataFlow = dataFlow
        self.deviceInfo = deviceInfo
        self.name = name
        self._options.check(training=self._training)
        self._check_distributed_device()
        self.replicationFactor = self._options.localReplicas()
        self.accumulationFactor = self._options.accumulation()
        proto = load_model(fnModel)  # it is as large as the weights: not kept
        self._opset = opset_of(proto)
        self._model = self._read(proto, inputShapeInfo)
        del proto
        self._placement = check_placement(
            self._model, self._options, dataFlow, training=self._training, ipus=self._ipus_per_replica
        )
        self._broadcast = frozenset(
            key.removeprefix(STREAM_MODE) for key in self._model.metadata if key.startswith(STREAM_MODE)
        )
        self._anchors = [dataFlow.art(id).anchor(id) for id in dataFlow.anchors()]
        self._graph, self._gradients = self._transform()
        self._weights = Weights(self._graph, settings_of(self._model.metadata))
        self._executable: Executable | None = None
        self._engine: Engine | None = None
        self._weights_loaded = False
        self._sizes_checked = False
        self._runs = 0

    def _read(self, proto: onnx.ModelProto, shapes: InputShapeInfo | None) -> Graph:
        """The model, with what depends on the number of replicas."""
        metadata, replicas = metadata_of(proto), self._options.getGlobalReplicationFactor()
        data = initializers_of(proto)
        for id, settings in settings_of(metadata).items():
            if id in data:
                settings.shapeOnReplica(data[id].shape, replicas, id)
        known = {} if shapes is None else {id: info.described for id, info in shapes.infos.items()}
        return from_model(tell_replicas(proto, replicas), append, groups=grouped(metadata, replicas), shapes=known)

    def _transform(self) -> tuple[Graph, list[Gradient]]:
        """The graph of a step, and the gradients that are reduced in it."""
        raise AssertionError("a kind of session defines this")

    # Compilation

    def initAnchorArrays(self) -> dict[str, NDArray[Any]]:
        """Arrays that fit the anchors of one step, by tensor id."""
        step, arrays = self._step(), {}
        for anchor in self._anchors:
            if step.batches % anchor.period:
                raise RuntimeError("Invalid anchor period, is not divisble by batchesPerStep")
            tensor = self._graph.tensor(anchor.tensor)
            arrays[anchor.tensor] = np.empty(step.shape(anchor, tensor), tensor.dtype.numpy)
        return arrays

    def _step(self) -> StepShape:
        return StepShape(self.dataFlow.batchesPerStep(), self.accumulationFactor, self.replicationFactor)

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compile for the device, and load."""
        self._options.check_counts()
        self._check_device()
        self._executable = self._compile()
        if loadEngine:
            self.loadEngineAndConnectStreams()

    def _compile(self) -> Executable:
        """Compile, or load what was compiled before."""
        folder = cache_folder(self._options)
        if folder is None:
            return self._lower()
        return compiled_once(folder, self._graph, self._key(), self._lower)

    def _arguments(self) -> dict[str, Any]:
        """What the compiler is told besides the graph."""
        return {
            "step": self._step(),
            "anchors": self._anchors,
            "gradients": self._gradients,
            "reduction": self._options.reduction(),
            "replicas": self._options.getGlobalReplicationFactor(),
            "broadcast": self._broadcast,
            "bucket_bytes": self._options.bucketBytes(),
        }

    def _lower(self) -> Executable:
        return lower(self._graph.copy(), **self._arguments())

    def _key(self) -> str:
        return cache_key(self._graph, self._arguments())

    def compileAndExport(self, filename: str) -> None:
        """Compile, and write the executable to a file."""
        self.prepareDevice(loadEngine=False)
        self.saveExecutable(filename)

    def saveExecutable(self, path: str, savePopartMetadata: bool = True, saveVariables: bool = True) -> None:
        """Write what was compiled to a file; variables stay with the model."""
        save_executable(self.executable, path, self._key())

    def loadExecutable(self, path: str) -> None:
        """Take the executable from a file instead of compiling; ``loadEngineAndConnectStreams`` follows."""
        self._executable = with_variables(load_executable(path, self._key()), self._graph)

    def loadEngineAndConnectStreams(self) -> None:
        """Attach to the device and load what was compiled."""
        info = self.deviceInfo
        if info.connectionType is not DeviceConnectionType.Never and not info.tryAttachUntilTimeout():
            raise EmulatorError(
                f"Failed to attach to device with id '{info.id}': somebody else has its IPUs. Detach the other "
                "device first, or close the session that uses it"
            )
        self._engine = Engine(self.executable, self._replicas())
        self._weights_loaded = not self._training

    def _replicas(self) -> Replicas:
        options = self._options
        offset = options.globalReplicaOffset if options.enableDistributedReplicatedGraphs else 0
        total = options.getGlobalReplicationFactor()
        return Replicas(local=self.replicationFactor, offset=offset, total=total)

    @property
    def _ipus_per_replica(self) -> int:
        return max(1, self.deviceInfo.numIpus // self._options.localReplicas())

    def _check_distributed_device(self) -> None:
        kind = self.deviceInfo.type
        if self._options.enableDistributedReplicatedGraphs and kind not in (DeviceType.Ipu, DeviceType.OfflineIpu):
            raise EmulatorError(
                "Only IPU Hardware devices supported with distributed replicated graphs. Unsupported device type "
                f"{kind.name}"
            )

    def _check_device(self) -> None:
        ipus = self.deviceInfo.numIpus
        if self.deviceInfo.type is DeviceType.Cpu:
            return
        if ipus % self.replicationFactor:
            raise EmulatorError(
                "For replicated graphs, the number of IPUs must be divisible by the replication factor."
            )
        if not self._options.usesVirtualGraphs():
            if ipus > 1 and ipus != self.replicationFactor:
                raise EmulatorError(
                    f"If virtual graphs are disabled, the replicated graph count ({self.replicationFactor}) needs to "
                    f"be equal to the number of IPUs ({ipus})"
                )
            return
        check_virtual_graphs_fit(self._model, self._ipus_per_replica)

    @property
    def executable(self) -> Executable:
        """What was compiled. An extension of PopART."""
        if self._executable is None:
            raise SessionError("The session has not been compiled; call prepareDevice() first")
        return self._executable

    @property
    def _loaded(self) -> Engine:
        if self._engine is None:
            raise SessionError("The session has no engine; call prepareDevice() first")
        return self._engine

    # Running

    def run(self, *args: Any, debugName: str = "") -> None:
        """``run(stepio[, debugName])`` or ``run(programHandle, stepio[, debugName])``: ``batchesPerStep`` batches."""
        stepio = next((arg for arg in args if isinstance(arg, PyStepIO | PyStepIOCallback)), None)
        if stepio is None:
            raise TypeError("run() takes a PyStepIO or a PyStepIOCallback")
        if self.deviceInfo.connectionType is DeviceConnectionType.Never:
            raise EmulatorError("Offline IPU device is not configured for execution")
        engine = self._loaded
        if not self._weights_loaded and self._weights.values:
            raise SessionError(
                "Must call weightsFromHost before run as the model has initializers and the session has been created "
                "in training mode"
            )
        if self._options.syntheticDataMode is not SyntheticDataMode.Off:
            engine.run(SyntheticFeed(self._options.syntheticDataMode.name, engine.executable.graph.tensors))
        else:
            self._run_with(engine, stepio)
        self._runs += 1

    def _run_with(self, engine: Engine, stepio: PyStepIO | PyStepIOCallback) -> None:
        stepio.attach(engine.executable.graph.tensors)
        if isinstance(stepio, PyStepIO) and stepio.checksSizes and not self._sizes_checked:
            check_sizes(stepio, engine.executable, self._broadcast)
        self._sizes_checked = True
        engine.run(stepio)

    def wallSeconds(self) -> dict[str, float]:
        """Measured seconds of all runs: compute, collectives, host I/O, other, total. An extension of PopART."""
        return self._loaded.wall.seconds()

    # Weights

    def weightsFromHost(self) -> None:
        """Copy the host's weights and optimiser state to all local replicas."""
        self._weights.load(self._loaded)
        self._weights_loaded = True

    def weightsToHost(self) -> None:
        """Copy weights and optimiser state to the host: of the first replica, or of the first of each group."""
        self._weights.fetch(self._loaded)

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """Copy the host's weights to the user's arrays."""
        self._weights.read(weightsIo)

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """Set the host's weights from the user's arrays, and the device's from the host's."""
        if not self._training and self._options.constantWeights:
            raise EmulatorError(
                "Cannot call writeWeights when constantWeights is set. Set `constantWeights` to False in the "
                "`SessionOption`s when initialising the session to enable this behaviour."
            )
        self._weights.write(weightsIo)
        self.weightsFromHost()

    def broadcastWeights(self, rootRank: int = 0) -> None:
        """Give every instance the host's weights of instance ``rootRank``; ``weightsFromHost`` must follow."""
        for id, value in self._weights.values.items():
            self._weights.values[id] = np.array(popdist_py.broadcast(value, rootRank)).reshape(value.shape)

    def modelToHost(self, filename: str) -> None:
        """Write a ModelProto with the weights of the device and the optimiser state."""
        self.weightsToHost()
        graph = self._model.copy()
        for id, value in self._weights.values.items():
            if id not in graph.tensors:
                graph.add(Tensor(id, self._graph.tensors[id].dtype, self._graph.tensors[id].shape, Role.WEIGHT))
            graph.data[id] = value
        temporary = f"{filename}.{os.getpid()}.tmp"
        with open(temporary, "wb") as file:
            file.write(to_model(graph, opset=self._opset))
        os.replace(temporary, filename)

    def resetHostWeights(
        self, modelProtoOrFilename: Model, ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False
    ) -> None:
        """Set the host's weights from a model; ``weightsFromHost`` must follow."""
        if not self._training and self._options.constantWeights:
            raise SessionError("Cannot call resetHostWeights when constantWeights is set")
        model = load_model(modelProtoOrFilename)
        self._weights.reset(initializers_of(model), ignore_unknown=ignoreWeightsInModelWithoutCorrespondingHostWeight)
        self._weights_loaded = False

    # Questions

    def getInfo(self, id: str) -> TensorInfo:
        """Type and shape of a tensor of the transformed model."""
        return TensorInfo.of(self._graph.tensor(id))

    def getAllTensorIds(self) -> set[str]:
        return set(self._graph.tensors)

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """The program and the memory plan as text."""
        return str(self.executable)

    def getReport(self, resetProfile: bool = True) -> Report:
        """Program, memory in bytes and operations of a step; stands in for PopVision's report."""
        return Report.of(self.executable, self.replicationFactor)

    def getCycleCount(self, id: str = "") -> int:
        """Modelled cycles of the last run on the first replica: an estimate from the operations of a step."""
        if not self._runs:
            raise SessionError("Must call run before getCycleCount.")
        return Cycles(self._options).count(id, self.executable, self.deviceInfo.tilesPerIPU, self._ipus_per_replica)

    def _serializeIr(self, format: object = None) -> str:
        """The transformed model as JSON: ``{"maingraph": [{"type", "name", "inputs", "outputs", ...}]}``."""
        return serialised(self._graph)

    # Randomness

    def setRandomSeed(self, seed: int) -> None:
        """Draw other random numbers from the next step on; they depend on nothing but this, and what draws them."""
        if not has_key(self._graph):
            warnings.warn("The model has no random behaviour; its seed has no effect", stacklevel=2)
            return
        self._loaded.seed = int(seed) % (1 << 64)
        self._loaded.steps = 0

    def getRandomSeed(self) -> int:
        return self._loaded.seed if has_key(self._graph) else 0

    def getRNGState(self) -> list[int]:
        """The seed and the number of steps since it was set, each as two 32-bit numbers, low one first."""
        self._check_rng_option("get")
        engine = self._loaded
        return [value >> shift & 0xFFFFFFFF for value in (engine.seed, engine.steps) for shift in (0, 32)]

    def setRNGState(self, state: Sequence[int]) -> None:
        """Go on with the random numbers where ``getRNGState`` was called."""
        self._check_rng_option("set")
        if len(state) != 4:
            raise SessionError(f"A random number state of {len(state)} values was given; getRNGState gives 4")
        low_seed, high_seed, low_steps, high_steps = (int(value) for value in state)
        self._loaded.seed, self._loaded.steps = low_seed | high_seed << 32, low_steps | high_steps << 32

    def _check_rng_option(self, verb: str) -> None:
        if not self._options.enableLoadAndOffloadRNGState:
            raise SessionError(
                f"Trying to {verb} the RNG state, but the session option enableLoadAndOffloadRNGState must be set to "
                "True."
            )

    def close(self) -> None:
        """Leave the collectives and free the device. An extension of PopART."""
        if self._engine is not None:
            self._engine.replicas.close()
            self._engine = None
            self.deviceInfo.detach()
