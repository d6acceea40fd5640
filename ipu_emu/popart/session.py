"""Session: a model compiled for a device, with its data."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine import Engine, Replicas
from ipu_emu.errors import EmulatorError, SessionError
from ipu_emu.graph import Graph, Role, Tensor
from ipu_emu.graph.onnx_model import from_model, load_model, opset_of, to_model
from ipu_emu.hostio import check_sizes
from ipu_emu.ops import append
from ipu_emu.popart.builder import STREAM_MODE
from ipu_emu.popart.dataflow import DataFlow
from ipu_emu.popart.devices import DeviceInfo
from ipu_emu.popart.enums import DeviceConnectionType, DeviceType
from ipu_emu.popart.options import SessionOptions
from ipu_emu.popart.stepio import PyStepIO, PyStepIOCallback, PyWeightsIO
from ipu_emu.popart.tensorinfo import TensorInfo
from ipu_emu.program import Executable
from ipu_emu.program.anchors import StepShape
from ipu_emu.program.lowering import lower
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
        userOptions: SessionOptions | None,
        name: str,
    ) -> None:
        self._options = userOptions if userOptions is not None else SessionOptions()
        self._proto = load_model(fnModel)
        self._model: Graph = from_model(self._proto, append)
        self.dataFlow = dataFlow
        self.deviceInfo = deviceInfo
        self.name = name
        self.replicationFactor = self._options.localReplicas()
        self.accumulationFactor = self._options.accumulation()
        self._broadcast = frozenset(
            key.removeprefix(STREAM_MODE) for key in self._model.metadata if key.startswith(STREAM_MODE)
        )
        self._anchors = [dataFlow.art(id).anchor(id) for id in dataFlow.anchors()]
        self._graph, self._gradients = self._transform()
        self._host = {id: np.array(data) for id, data in self._graph.data.items() if self._is_variable(id)}
        self._engine: Engine | None = None
        self._weights_loaded = False
        self._sizes_checked = False

    def _transform(self) -> tuple[Graph, list[Gradient]]:
        """The graph of a step, and the gradients that are reduced in it."""
        raise AssertionError("a kind of session defines this")

    def _is_variable(self, id: str) -> bool:
        return id in self._graph.tensors and self._graph.tensors[id].role.is_variable

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
        self._options.check(training=self._training)
        self._check_device()
        self.deviceInfo.attach()
        executable = lower(
            self._graph.copy(),
            self._step(),
            self._anchors,
            gradients=self._gradients,
            reduction=self._options.reduction(),
            replicas=self._options.getGlobalReplicationFactor(),
            broadcast=self._broadcast,
        )
        self._engine = Engine(executable, self._replicas())
        self._weights_loaded = not self._training

    def _replicas(self) -> Replicas:
        options = self._options
        offset = options.globalReplicaOffset if options.enableDistributedReplicatedGraphs else 0
        total = options.getGlobalReplicationFactor()
        return Replicas(local=self.replicationFactor, offset=offset, total=total)

    def _check_device(self) -> None:
        kind, ipus = self.deviceInfo.type, self.deviceInfo.numIpus
        if self._options.enableDistributedReplicatedGraphs and kind not in (DeviceType.Ipu, DeviceType.OfflineIpu):
            raise EmulatorError(
                "Only IPU Hardware devices supported with distributed replicated graphs. Unsupported device type "
                f"{kind.name}"
            )
        if kind is DeviceType.Cpu:
            return
        if ipus % self.replicationFactor:
            raise EmulatorError(
                "For replicated graphs, the number of IPUs must be divisible by the replication factor."
            )
        if ipus > 1 and ipus != self.replicationFactor:
            raise EmulatorError(
                f"If virtual graphs are disabled, the replicated graph count ({self.replicationFactor}) needs to be "
                f"equal to the number of IPUs ({ipus})"
            )

    @property
    def _loaded(self) -> Engine:
        if self._engine is None:
            raise SessionError("The session has no engine; call prepareDevice() first")
        return self._engine

    # Running

    def run(self, *args: Any, debugName: str = "") -> None:
        """``run(stepio[, debugName])``: one step of ``batchesPerStep`` batches."""
        stepio = next((arg for arg in args if isinstance(arg, PyStepIO | PyStepIOCallback)), None)
        if stepio is None:
            raise TypeError("run() takes a PyStepIO or a PyStepIOCallback")
        if self.deviceInfo.connectionType is DeviceConnectionType.Never:
            raise EmulatorError("Offline IPU device is not configured for execution")
        engine = self._loaded
        if not self._weights_loaded and self._host:
            raise SessionError(
                "Must call weightsFromHost before run as the model has initializers and the session has been created "
                "in training mode"
            )
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
        for id, value in self._host.items():
            self._loaded.write(id, value)
        self._weights_loaded = True

    def weightsToHost(self) -> None:
        """Copy weights and optimiser state of the first replica to the host."""
        for id in self._host:
            self._host[id] = self._loaded.read(id)

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """Copy the host's weights to the user's arrays."""
        for id, array in weightsIo.weights.items():
            np.copyto(array, self._host_value(id).reshape(array.shape))

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """Set the host's weights from the user's arrays, and the device's from the host's."""
        if not self._training and self._options.constantWeights:
            raise EmulatorError(
                "Cannot call writeWeights when constantWeights is set. Set `constantWeights` to False in the "
                "`SessionOption`s when initialising the session to enable this behaviour."
            )
        for id, array in weightsIo.weights.items():
            self._host[id] = np.array(array, dtype=self._host_value(id).dtype).reshape(self._host_value(id).shape)
        self.weightsFromHost()

    def _host_value(self, id: str) -> NDArray[Any]:
        if id not in self._host:
            raise SessionError(
                f"No weight or optimiser state '{id}' in the session; there are {', '.join(self._host)}"
            )
        return self._host[id]

    def modelToHost(self, filename: str) -> None:
        """Write a ModelProto with the weights of the device and the optimiser state."""
        self.weightsToHost()
        graph = self._model.copy()
        for id, value in self._host.items():
            if id not in graph.tensors:
                graph.add(Tensor(id, self._graph.tensors[id].dtype, value.shape, Role.WEIGHT))
            graph.data[id] = value
        temporary = f"{filename}.{os.getpid()}.tmp"
        with open(temporary, "wb") as file:
            file.write(to_model(graph, opset=opset_of(self._proto)))
        os.replace(temporary, filename)

    def resetHostWeights(
        self, modelProtoOrFilename: Model, ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False
    ) -> None:
        """Set the host's weights from a model; ``weightsFromHost`` must follow."""
        if not self._training and self._options.constantWeights:
            raise SessionError("Cannot call resetHostWeights when constantWeights is set")
        graph = from_model(load_model(modelProtoOrFilename), append)
        for id in (tensor.id for tensor in graph.with_role(Role.WEIGHT)):
            if id not in self._host:
                if ignoreWeightsInModelWithoutCorrespondingHostWeight:
                    continue
                raise SessionError(f"resetWeights, no tensor '{id}' in tensors")
            value, old = graph.data[id], self._host[id]
            if (value.shape, value.dtype) != (old.shape, old.dtype):
                raise SessionError(
                    f"Trying to reset weights using tensor with non matching tensor info. Tensor ID: {id}"
                )
            self._host[id] = np.array(value)
        self._weights_loaded = False

    # Questions

    def getInfo(self, id: str) -> TensorInfo:
        """Type and shape of a tensor of the transformed model."""
        return TensorInfo.of(self._graph.tensor(id))

    def getAllTensorIds(self) -> set[str]:
        return set(self._graph.tensors)

    def getSummaryReport(self) -> str:
        """The program and the memory plan as text."""
        return str(self._loaded.executable)

    @property
    def executable(self) -> Executable:
        """What was compiled. An extension of PopART."""
        return self._loaded.executable

    def setRandomSeed(self, seed: int) -> None:
        warnings.warn("The model has no random behaviour; its seed has no effect", stacklevel=2)

    def getRandomSeed(self) -> int:
        return 0

    def close(self) -> None:
        """Leave the collectives and free the device. An extension of PopART."""
        if self._engine is not None:
            self._engine.replicas.close()
            self._engine = None
