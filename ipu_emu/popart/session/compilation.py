"""Compilation: a model with its options, transformed into the graph of a step and compiled into an executable."""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from ipu_emu.compiler.cache.executable_cache import cache_key, compiled_once
from ipu_emu.compiler.lowering.step_program import lower
from ipu_emu.compiler.rewriting.replica_count import set_replica_count
from ipu_emu.compiler.rewriting.supported_types import append_supported, supported_inputs
from ipu_emu.compiler.step_graph import Gradient
from ipu_emu.errors import ArgumentTypeError, EmulatorError, SessionError
from ipu_emu.graph import Graph, Role
from ipu_emu.graph.onnx_files import Large, load_light
from ipu_emu.graph.onnx_model import from_model, metadata_of
from ipu_emu.graph.onnx_template import ModelFrame
from ipu_emu.hostio import DataMode
from ipu_emu.ops import append
from ipu_emu.popart.devices.device_manager import DeviceInfo
from ipu_emu.popart.options.cache_folder import cache_folder
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.options.input_settings import (
    broadcast_inputs,
    check_shapes,
    io_inputs,
    overlapped_inputs,
    staged_inputs,
)
from ipu_emu.popart.options.patterns import InputShapeInfo
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.options.variable_settings import grouped, settings_of
from ipu_emu.popart.placement.assign_ipus import placed
from ipu_emu.popart.placement.device_rules import check_device, check_distributed, check_io_tiles
from ipu_emu.popart.placement.out_of_memory import check_memory
from ipu_emu.popart.placement.placement_rules import check_placement
from ipu_emu.popart.placement.variable_locations import Locations
from ipu_emu.popart.session.step_runner import mode_for
from ipu_emu.popart.types.enums import TileSet
from ipu_emu.popart.types.tensor_info import TensorInfo
from ipu_emu.program.anchors import StepShape
from ipu_emu.program.executable import Executable

__all__ = ["Compilation", "Model"]

Model = bytes | str | os.PathLike[str]


class Compilation:
    """What a session is before anything runs."""

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
        if not isinstance(deviceInfo, DeviceInfo):
            raise EmulatorError(f"A session needs a device, found {deviceInfo!r}; get one from a DeviceManager")
        if not isinstance(dataFlow, DataFlow):
            raise ArgumentTypeError(
                f"A session needs a DataFlow, found {dataFlow!r}; give DataFlow(batches, anchors)"
            )
        if not self._training and not dataFlow.nAnchors():
            raise EmulatorError("User must specify an anchor tensor when doing inference.")
        self._options = deepcopy(userOptions) if userOptions is not None else SessionOptions()
        self.dataFlow = dataFlow
        self.deviceInfo = deviceInfo
        self.name = name
        self._options.check(training=self._training)
        check_distributed(deviceInfo, self._options)
        self.replicationFactor = self._options.localReplicas()
        self.accumulationFactor = self._options.accumulation()
        proto, large = load_light(fnModel)
        self._model = self._read(proto, large, inputShapeInfo)
        self._frame = ModelFrame(proto)
        del proto, large  # the data of the initializers
        self._placement = check_placement(
            self._model, self._options, dataFlow, training=self._training, ipus=self._ipus_per_replica
        )
        self._model = placed(self._model, self._options, self._ipus_per_replica, training=self._training)
        self._broadcast = broadcast_inputs(self._model.metadata)
        self._anchors = [dataFlow.art(id).anchor(id) for id in dataFlow.anchors()]
        self._graph, self._gradients = self._transform()
        self._executable: Executable | None = None

    def _read(self, proto: onnx.ModelProto, large: Large, shapes: InputShapeInfo | None) -> Graph:
        """The model, with what depends on the number of replicas."""
        metadata, replicas = metadata_of(proto), self._options.getGlobalReplicationFactor()
        shapes_of = {initializer.name: tuple(initializer.dims) for initializer in proto.graph.initializer}
        for id, settings in settings_of(metadata).items():
            if id in shapes_of:
                settings.shapeOnReplica(shapes_of[id], replicas, id)
        known = {} if shapes is None else {id: info.described for id, info in shapes.infos.items()}
        check_shapes(proto, known)
        casts = self._options.enableSupportedDataTypeCasting
        return from_model(
            set_replica_count(proto, replicas),
            append_supported if casts else append,
            groups=grouped(metadata, replicas),
            shapes=supported_inputs(proto, known) if casts else known,
            large=large,
        )

    def _transform(self) -> tuple[Graph, list[Gradient]]:
        """The graph of a step, and the gradients that are reduced in it."""
        raise AssertionError("a kind of session defines this")

    def _locations(self) -> Locations:
        """Where variables and activations are kept."""
        return Locations(self._options, settings_of(self._model.metadata), self.dataFlow.anchors())

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

    def _prepare(self, executable: Executable | None = None) -> None:
        """Compile for the device, unless there is an executable; errors of the device appear here."""
        self._options.check_counts()
        check_device(self.deviceInfo, self._options, self._model, self._ipus_per_replica)
        check_io_tiles(self.deviceInfo, self._options, self._on_io_tiles())
        self._executable = executable or replace(self._compile(), sync=self.deviceInfo.syncPattern.name)
        check_memory(
            self._executable,
            self.deviceInfo,
            replicas=self._options.getGlobalReplicationFactor(),
            compiled=self._lower,
            beside=self._second_program(),
        )

    def _second_program(self) -> Executable | None:
        """A program that lies on the IPUs beside that of a step."""
        return None

    def _on_io_tiles(self) -> list[str]:
        """Inputs and anchors that I/O tiles exchange with the host."""
        flow = self.dataFlow
        anchors = [id for id in flow.anchors() if flow.art(id).tileSet() is TileSet.IO]
        return [*io_inputs(self._model.metadata), *anchors]

    def _compile(self) -> Executable:
        """Compile, or load what was compiled before."""
        folder = cache_folder(self._options)
        if folder is None:
            return self._lower()
        return compiled_once(folder, self._graph, self._key(), self._lower)

    def _arguments(self) -> dict[str, Any]:
        """What the compiler is told besides the graph."""
        inputs, ahead = self._graph.with_role(Role.INPUT), overlapped_inputs(self._model.metadata)
        return {
            "step": self._step(),
            "anchors": self._anchors,
            "gradients": self._gradients,
            "reduction": self._options.reduction(),
            "replicas": self._options.getGlobalReplicationFactor(),
            "broadcast": self._broadcast,
            "ahead": ahead,
            "synthetic": mode_for(self._options) is DataMode.SYNTHETIC,
            "staged": staged_inputs((tensor.id for tensor in inputs), self._options, ahead),
            "bucket_bytes": self._options.bucketBytes(),
            "recomputation": self._options.recomputation(),
            "activations": self._locations().activations(),
            "fused": not self._options.enableFloatingPointChecks,
            "schedule": self._options.pipelineSchedule if self._options.enablePipelining else None,
            "preload": self._options.preloads(),
            "iterations": self._options.pipelineBatchSerialization,
        }

    def _lower(self, **others: Any) -> Executable:
        """Compile, with ``others`` in the place of arguments that follow from the options."""
        return lower(self._graph.copy(), **(self._arguments() | others))

    def _key(self) -> str:
        return cache_key(self._graph, self._arguments())

    @property
    def _ipus_per_replica(self) -> int:
        return max(1, self.deviceInfo.numIpus // self._options.localReplicas())

    @property
    def executable(self) -> Executable:
        """What was compiled. An extension of PopART."""
        if self._executable is None:
            raise SessionError("The session has not been compiled; call prepareDevice() first")
        return self._executable

    def getInfo(self, id: str) -> TensorInfo:
        """Type and shape of a tensor of the transformed model."""
        return TensorInfo.of(self._graph.tensor(id).whole)

    def hasInfo(self, id: str) -> bool:
        """Whether the transformed model has this tensor."""
        return id in self._graph.tensors

    def getAllTensorIds(self) -> set[str]:
        return set(self._graph.tensors)
