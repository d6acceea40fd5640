"""Session: a compiled model on a device, with its data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import popdist_py
from ipu_emu.compiler.cache.executable_cache import to_bytes, with_variables
from ipu_emu.compiler.options import TrainingOptions
from ipu_emu.compiler.rewriting.reserved_prefixes import STASHED
from ipu_emu.engine import Engine
from ipu_emu.errors import ArgumentTypeError, EmulatorError, SessionError
from ipu_emu.graph import Role
from ipu_emu.hardware import StreamingMemory
from ipu_emu.hostio.step_runner import StepRunner
from ipu_emu.hostio.weights_digest import report_digest
from ipu_emu.onnx.files import Source
from ipu_emu.onnx.read import initializers
from ipu_emu.popart.devices.device_manager import PRINTED, DeviceInfo
from ipu_emu.popart.ir.serialised_ir import serialised
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.options.input_settings import InputShapeInfo
from ipu_emu.popart.session.compilation import Compilation, check_sync
from ipu_emu.popart.session.external_variables import ExternalVariables
from ipu_emu.popart.session.option_rules import check_cycle_counter
from ipu_emu.popart.session.popart_limits import check_replaced
from ipu_emu.popart.session.random_state import RandomState
from ipu_emu.popart.session.step_io import PyStepIO, PyStepIOCallback, PyWeightsIO
from ipu_emu.popart.types.enums import DeviceConnectionType, DeviceType
from ipu_emu.popart.types.tensor_info import TensorInfo
from ipu_emu.program.clock import TimelineSegment
from ipu_emu.program.executable import Executable, ProgramReport
from ipu_emu.session.compiled_program import CompiledProgram
from ipu_emu.session.host_weights import HostWeights
from ipu_emu.session.loaded_program import LoadedProgram
from ipu_emu.session.options.compile_options import data_mode, synthetic_values
from ipu_emu.session.options.engine_options import STREAMING_FOLDER, engine_options
from ipu_emu.session.options.patterns import Patterns
from ipu_emu.session.options.session_options import SessionOptions
from ipu_emu.session.options.without_effect import without_effect
from popdist_py import trace


class Session:
    """Base of TrainingSession and InferenceSession."""

    def __init__(
        self,
        fnModel: Source,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None,
        userOptions: SessionOptions | None,
        name: str,
        training: Callable[[SessionOptions], TrainingOptions] | None = None,
        patterns: Patterns | None = None,
    ) -> None:
        if not isinstance(deviceInfo, DeviceInfo):
            raise EmulatorError(f"A session needs a device, found {deviceInfo!r}; get one from a DeviceManager")
        if not isinstance(dataFlow, DataFlow):
            raise ArgumentTypeError(
                f"A session needs a DataFlow, found {dataFlow!r}; give DataFlow(batches, anchors)"
            )
        if training is None and not dataFlow.nAnchors():
            raise EmulatorError("User must specify an anchor tensor when doing inference.")
        self._options = deepcopy(userOptions) if userOptions is not None else SessionOptions()
        self._training = training is not None
        self._patterns = patterns if patterns is not None else Patterns()
        self._patterns.check_mandatory()
        self.dataFlow, self.deviceInfo, self.name = dataFlow, deviceInfo, name
        self._compilation = Compilation(
            fnModel, dataFlow, deviceInfo, inputShapeInfo, self._options, training and training(self._options)
        )
        self._folder = engine_options(self._options.engineOptions).get(STREAMING_FOLDER)
        self.replicationFactor = self._options.localReplicas()
        self.accumulationFactor = self._options.accumulation()
        graph, source = self._compilation.graph, self._compilation.source
        read_from_all = self._compilation.step.options.locations.read_from_all
        self._weights = HostWeights(graph, self._compilation.step.gradients, read_from_all=read_from_all)
        self._external = ExternalVariables(source.template, source.external)
        self._steps = StepRunner(
            data_mode(self._options),
            source.properties.broadcast,
            synthetic=synthetic_values(self._options),
            prefetch=bool(self._options.enablePrefetchDatastreams),
        )
        self._random = RandomState(graph, self._options)
        self._program: LoadedProgram | None = None
        self._loaded_executable: Executable | None = None
        self._weights_loaded = False
        self._runs = 0

    # Compilation

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compile for the device, or use the executable that was loaded, and create the engine."""
        check_replaced(self._compilation.model, self._compilation.graph, self._patterns)
        self._use(self._compilation.prepared(self._loaded_executable))
        if loadEngine:
            self.loadEngineAndConnectStreams()

    def compileAndExport(self, filename: str) -> None:
        """Compile for IPUs, and write the executable to a file."""
        if self.deviceInfo.type not in (DeviceType.Ipu, DeviceType.OfflineIpu):
            raise SessionError(f"Executables for device type {PRINTED[self.deviceInfo.type]} cannot be saved")
        self._use(self._compilation.prepared())
        self.saveExecutable(filename)

    def _use(self, compiled: CompiledProgram) -> LoadedProgram:
        if self._program is not None:
            self._program.compiled = compiled
        else:
            watch = bool(self._options.enableFloatingPointChecks)
            self._program = LoadedProgram(compiled, self.name, self._weights, folder=self._folder, watch=watch)
        return self._program

    @without_effect("savePopartMetadata")
    def saveExecutable(self, path: str, savePopartMetadata: bool = True, saveVariables: bool = True) -> None:
        """Write the executable to a file, with or without the host's values of variables.

        In a folder the file is executable.popef; folders that do not exist are made.
        """
        values = self._weights.values if saveVariables else {}
        self._compiled.saved(self._compilation.save(self.executable, path, values))

    def loadExecutable(self, path: str) -> None:
        """Load the executable from a file instead of compiling, and the values of variables if the file has them."""
        compilation = self._compilation
        file, loaded = compilation.load(path)
        self._weights.values |= {id: value for id, value in loaded.graph.data.items() if id in self._weights.values}
        self._loaded_executable = with_variables(loaded, compilation.graph.data | self._weights.values)
        compiled = CompiledProgram(compilation.final_step, self._loaded_executable, compilation.target)
        self._use(compiled).file = Path(file)

    def saveVariables(self, path: str) -> None:
        """Write the host's values of variables, with the executable that they belong to."""
        self.saveExecutable(path, savePopartMetadata=False, saveVariables=True)

    def getSerializedGraph(self) -> bytes:
        """The compiled graph as bytes, in the emulator's own form."""
        return to_bytes(self.executable, self._compilation.key())

    def loadEngineAndConnectStreams(self) -> None:
        """Attach to the device and load the executable."""
        if self._program is None:
            raise SessionError(
                "Trying to load an engine but no compiled engine. Did you forget to call prepareDevice()?"
            )
        info = self.deviceInfo
        check_sync(info, self.executable)
        if info.connectionType is not DeviceConnectionType.Never and not info.tryAttachUntilTimeout():
            raise EmulatorError(
                f"Failed to attach to device with id '{info.id}': its IPUs are in use. Detach the other "
                "device first, or close the session that uses it"
            )
        engine = self._program.load()
        if self._weights_loaded:
            self._weights.load(engine)
        self._weights_loaded = self._weights_loaded or not self._training

    @property
    def _compiled(self) -> LoadedProgram:
        if self._program is None:
            raise SessionError("The session has not been compiled; call prepareDevice() first")
        return self._program

    @property
    def _on_device(self) -> LoadedProgram:
        if self._program is None or self._program.engine is None:
            raise SessionError("The session has no engine; call prepareDevice() first")
        return self._program

    def _prepared_for(self, call: str) -> Engine:
        """The engine; raise SessionError if ``call`` came before prepareDevice."""
        if self._program is None or self._program.engine is None:
            raise SessionError(f"Devicex::prepare() must be called before Devicex::{call} is called.")
        return self._program.engine

    @property
    def engine(self) -> Engine:
        """The engine, which holds the values of the local replicas. An extension of PopART."""
        engine = self._on_device.engine
        assert engine is not None
        return engine

    @property
    def streamingMemory(self) -> StreamingMemory:
        """The Streaming Memory of this instance; off-chip tensors take part of it. An extension of PopART."""
        return self._compiled.streaming_memory

    @property
    def executable(self) -> Executable:
        """The executable. An extension of PopART."""
        return self._compiled.compiled.executable

    # Running

    def initAnchorArrays(self) -> dict[str, NDArray[Any]]:
        """Arrays for the anchors of one step, by tensor id."""
        return self._compilation.anchor_arrays()

    def run(self, *args: Any, **named: Any) -> None:
        """``run(stepio[, debugName])`` or ``run(programHandle, stepio[, debugName])``: ``batchesPerStep`` batches."""
        values = [*args, *named.values()]
        stepio = next((value for value in values if isinstance(value, PyStepIO | PyStepIOCallback)), None)
        if stepio is None:
            raise TypeError("run() takes a PyStepIO or a PyStepIOCallback")
        offline = self.deviceInfo.connectionType is DeviceConnectionType.Never
        if offline and not self._steps.is_measured:
            raise EmulatorError("Offline IPU device is not configured for execution")
        engine = self.engine
        if not self._weights_loaded and self._weights.values:
            raise SessionError(
                "Must call weightsFromHost before run as the model has initializers and the session has been created "
                "in training mode"
            )
        handle = next((value for value in values[:1] if isinstance(value, str)), str(named.get("programHandle", "")))
        with trace.span("step", trace.Category.COMPUTE), self._engine_for(handle, engine) as chosen:
            self._steps.run(chosen, stepio, host_only=offline, checks_sizes=stepio.checksSizes)
            self._weights.follow(engine)
        self._runs += 1

    @contextmanager
    def _engine_for(self, handle: str, engine: Engine) -> Iterator[Engine]:
        """Yield the engine that runs the program ``handle``; a base session has one program, whatever the handle."""
        yield engine

    def wallSeconds(self) -> dict[str, float]:
        """Measured seconds of all runs: compute, collectives, host I/O, other, total. An extension of PopART."""
        return self.engine.wall.seconds()

    # Random numbers

    def setRandomSeed(self, seed: int) -> None:
        """Set the seed for the next steps; random numbers depend only on it and on the op that draws them."""
        self._random.set_seed(lambda: self._prepared_for("setRandomSeedFromHost(uint64_t)"), seed)

    def getRandomSeed(self) -> int:
        """The seed that was set; 0 if nothing is random."""
        return self._random.seed(lambda: self._prepared_for("getRandomSeedToHost()"))

    def getRNGState(self) -> list[int]:
        """The seed and the number of steps since it was set, each as two 32-bit numbers, low one first."""
        return self._random.state(lambda: self._prepared_for("getRngStateToHost"))

    def setRNGState(self, state: Sequence[int]) -> None:
        """Continue the random numbers from a state that ``getRNGState`` returned."""
        self._random.set_state(lambda: self.engine, state)

    # Weights

    def restore(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Set weights, optimiser state and scalars on the host and the device. An extension of PopART."""
        self._on_device.restore(values)
        self._weights_loaded = True

    def weightsFromHost(self) -> None:
        """Copy the host's weights and optimiser state to all local replicas."""
        self._on_device.upload()
        self._weights_loaded = True

    def weightsToHost(self) -> None:
        """Copy weights and optimiser state to the host: of the first replica, or of the first of each group."""
        self._on_device.fetch()
        if self._training and self._runs:
            report_digest(self)

    def weightsByName(self) -> dict[str, NDArray[Any]]:
        """The host's values of the weights, without the optimiser's states. An extension of PopART."""
        tensors = self._compilation.graph.tensors
        return {id: value for id, value in self._weights.values.items() if tensors[id].role is Role.WEIGHT}

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """Copy the host's weights to the user's arrays."""
        self._weights.read(weightsIo.weights)

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """Set the host's weights from the user's arrays, and the device's from the host's."""
        if not self._training and self._options.constantWeights:
            raise EmulatorError(
                "Cannot call writeWeights when constantWeights is set. Set `constantWeights` to False in the "
                "`SessionOption`s when initialising the session to enable this behaviour."
            )
        self._weights.write(weightsIo.weights)
        self.weightsFromHost()

    @trace.span("broadcast of weights", trace.Category.WEIGHTS)
    def broadcastWeights(self, rootRank: int = 0) -> None:
        """Copy the host's weights of instance ``rootRank`` to every instance; call ``weightsFromHost`` afterwards.

        Every instance of the job must call it, whatever its options are; with one instance it has no effect.
        """
        popdist_py.init()
        instances = popdist_py.getNumInstances()
        if not isinstance(rootRank, (int, np.integer)) or not 0 <= rootRank < instances:
            raise EmulatorError(
                f"broadcastWeights: rootRank is {rootRank!r}, which is not an instance of this job; "
                f"give a number from 0 to {instances - 1}"
            )
        for id, value in self._weights.values.items():
            self._weights.values[id] = np.array(popdist_py.broadcast(value, int(rootRank))).reshape(value.shape)

    @trace.span("save the model", trace.Category.CHECKPOINT)
    def modelToHost(self, filename: str) -> None:
        """Write a ModelProto with the weights of the device and the optimiser state; external data stay external.

        They are replaced in their files. If these are not in the folder of ``filename``, where readers of the model
        look for them, they are written to ``<filename>.data``, as are the states of external weights.
        """
        if self._program is None:
            raise SessionError(
                "Devicex::prepare() must be called before Devicex::weightsToHost(const std::map<TensorId, "
                "MutableVoidData> &) is called."
            )
        self.weightsToHost()
        streamed = not self._options.disableGradAccumulationTensorStreams
        variables = self._weights.values | (self._weights.accumulators if streamed else {})
        saved = {id: value for id, value in variables.items() if not id.startswith(STASHED)}
        self._external.save(filename, self._compilation.model.data, saved)

    def updateExternallySavedTensorLocations(self, fromLocation: str, toLocation: str) -> None:
        """Move the file ``fromLocation`` of external data; ``modelToHost`` then refers to ``toLocation``."""
        self._external.move(fromLocation, toLocation)

    def resetHostWeights(
        self, modelProtoOrFilename: Source, ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False
    ) -> None:
        """Set the host's weights from a model; call ``weightsFromHost`` afterwards."""
        if not self._training and self._options.constantWeights:
            raise SessionError("Cannot call resetHostWeights when constantWeights is set")
        data = initializers(modelProtoOrFilename)
        self._weights.reset(data, ignore_unknown=ignoreWeightsInModelWithoutCorrespondingHostWeight)
        self._weights_loaded = False

    # Information

    def getInfo(self, id: str) -> TensorInfo:
        """Type and shape of a tensor of the transformed model."""
        if not self.hasInfo(id):
            raise EmulatorError(f"TensorInfo for `{id}' not set")
        return TensorInfo.of(self._compilation.graph.tensor(id).unsharded)

    def hasInfo(self, id: str) -> bool:
        """Whether the transformed model has this tensor."""
        return id in self._compilation.graph.tensors

    def getAllTensorIds(self) -> set[str]:
        """Ids of all tensors of the transformed model."""
        return set(self._compilation.graph.tensors)

    getTensorIds = getAllTensorIds

    @without_effect("resetProfile")
    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """The program and the memory plan as text."""
        return str(self.executable)

    @without_effect("resetProfile")
    def getReport(self, resetProfile: bool = True) -> ProgramReport:
        """Program, memory in bytes and operations of a step; stands in for PopVision's report."""
        return self._compiled.compiled.report

    def getCycleCount(self, id: str = "") -> int:
        """Modelled cycles of the last run on the first replica, those of ``modelledSeconds()["total"]``."""
        if not self._runs:
            raise SessionError("Must call run before getCycleCount.")
        check_cycle_counter(self._options, id, ipus=self._compilation.target.ipus)
        return self._compiled.compiled.modelled.cycles()

    def modelledSeconds(self) -> dict[str, float]:
        """The modelled time of a step on IPUs: busy seconds by kind, and in total. An extension of PopART."""
        return self._compiled.compiled.modelled.seconds()

    def modelledTimeline(self) -> TimelineSegment:
        """The modelled timeline of a step on each IPU of a replica. An extension of PopART."""
        return self._compiled.compiled.modelled.timeline

    def _serializeIr(self, format: object = None) -> str:
        """The IR after the transforms as JSON: ``{"maingraph": [{"type", "name", "inputs", "outputs", ...}]}``."""
        return serialised(
            self._compilation.final_step, self._compilation.ir_view(self._patterns), self._compilation.model
        )

    def close(self) -> None:
        """Disconnect from the collectives and release the device. An extension of PopART."""
        if self._program is not None:
            self._program.streaming_memory.clear()
            if self._program.engine is not None:
                self._program.close()
                self.deviceInfo.detach()


class InferenceSession(Session):
    """Runs the forward part of a model."""

    def __init__(
        self,
        fnModel: Source,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "inference",
    ) -> None:
        super().__init__(fnModel, dataFlow, deviceInfo, inputShapeInfo, userOptions, name, patterns=patterns)
