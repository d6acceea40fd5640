"""Compilation: the model of a session with its options, from the ONNX file to the executable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.compiler.cache.executable_cache import cache_key, cached_file, compiled_once
from ipu_emu.compiler.delayed_reports import DelayedReports
from ipu_emu.compiler.gradients.gradient import Gradient
from ipu_emu.compiler.memory.memory_remedies import MemoryNeed, Remedies, find_remedies
from ipu_emu.compiler.memory.out_of_memory import check_memory, memory_need, streaming_memory_of
from ipu_emu.compiler.options import CompileOptions, TrainingOptions
from ipu_emu.compiler.pipeline import STEP_GRAPH, CompileState, run_passes, start
from ipu_emu.compiler.placement.autoshard import TooFewOpsError
from ipu_emu.errors import EmulatorError, OpenShapeError
from ipu_emu.graph import Graph, Role
from ipu_emu.graph.body_inputs import Kind
from ipu_emu.graph.dtype import FLOAT, FLOAT16
from ipu_emu.onnx.files import Source
from ipu_emu.onnx.read import OnnxModel, read
from ipu_emu.popart.builder.graph_transformer import GraphTransformer
from ipu_emu.popart.devices.device_manager import DeviceInfo
from ipu_emu.popart.devices.device_rules import check_device, check_distributed, check_io_tiles
from ipu_emu.popart.ir.serialised_ir import IrView
from ipu_emu.popart.logger import getLogger
from ipu_emu.popart.options.compile_options import compile_options, step_shape, with_streams
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.options.memory_advice import MemoryRequest, memory_changes
from ipu_emu.popart.options.option_rules import check_combination
from ipu_emu.popart.options.patterns import InputShapeInfo, Patterns
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.session.popart_limits import check_arithmetic, check_limits, check_step
from ipu_emu.popart.types.enums import TileSet, VirtualGraphMode
from ipu_emu.program.executable import Executable
from popdist_py.environment import EXECUTABLE_CACHE_PATH

__all__ = ["Compilation", "cache_folder"]

#: Variables that name the folder of saved executables, by priority; the launcher sets the first.
_CACHE_VARIABLES = (EXECUTABLE_CACHE_PATH, "POPXL_CACHE_DIR", "POPART_CACHE_DIR")


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
        check_distributed(device, options)
        known = {} if shapes is None else {id: info.described for id, info in shapes.infos.items()}
        self.source = _read(model, options, known)
        self.model = self.source.graph
        check_limits(self.model, options, training=training is not None)
        check_combination(self.model, options, flow, training=training is not None, ipus=self.ipus_per_replica)
        asked = compile_options(options, flow, self.source.properties, ipus=self.ipus_per_replica, training=training)
        self.step = self._step(asked)
        check_step(self.model, self.step.graph, flow.anchors())

    def _step(self, asked: CompileOptions) -> CompileState:
        try:
            return run_passes(start(self.model, asked), stop_after=STEP_GRAPH)
        except TooFewOpsError as error:
            count = self.ipus_per_replica
            found = min(len(self.model.ops), count)
            raise EmulatorError(
                f"[AutoVirtualGraph] Couldn't find enough splits for {count} IPUs. Only found {found}. "
                f"{error.args[0]}"
            ) from None

    @property
    def ipus_per_replica(self) -> int:
        return max(1, self.device.numIpus // self.options.localReplicas())

    @property
    def _has_forward_program(self) -> bool:
        return bool(self.options.createImplicitPipeliningFwdOnlyProgram)

    @property
    def graph(self) -> Graph:
        """The graph of a step."""
        return self.step.graph

    @property
    def gradients(self) -> tuple[Gradient, ...]:
        """The gradients that are reduced in a step."""
        return self.step.gradients

    def anchor_arrays(self) -> dict[str, NDArray[Any]]:
        """Return arrays for the anchors of one step, by tensor id."""
        step, arrays = step_shape(self.options, self.flow), {}
        for anchor in self.step.anchors:
            if step.batches % anchor.period:
                raise RuntimeError("Invalid anchor period, is not divisble by batchesPerStep")
            tensor = self.graph.tensor(anchor.tensor)
            arrays[anchor.tensor] = np.empty(step.shape(anchor, tensor), tensor.dtype.numpy)
        return arrays

    def prepared(self, executable: Executable | None = None) -> Executable:
        """Return ``executable``, or compile one; raise EmulatorError if it does not fit the device."""
        self.options.check_counts()
        check_arithmetic(self.model)
        check_device(self.device, self.options, self.model, self.ipus_per_replica)
        check_io_tiles(self.device, self.options, self._on_io_tiles())
        made = executable or replace(self.compiled(), sync=self.device.syncPattern.name)
        beside = self.lowered(forward_only=True) if self._has_forward_program else None
        check_memory(made, self.device.device, beside=beside, remedies=self._remedies)
        return made

    def _remedies(self, now: MemoryNeed) -> Remedies:
        """Search for options with which the model fits; it needs ``now`` with the current ones."""
        options, weights = self.compile_options(), self.model.with_role(Role.WEIGHT)
        changes = memory_changes(
            options,
            streaming=bool(streaming_memory_of(self.device.device)),
            floats=any(weight.dtype is FLOAT for weight in weights),
            batches=tuple(tensor.shape[0] for tensor in self.model.with_role(Role.INPUT) if tensor.shape),
        )
        log = getLogger("session").warn
        with DelayedReports(lambda text: log(f"the model does not fit; trying {text}")) as report:
            return find_remedies(MemoryRequest(options), list(changes), self._need, now=now, progress=report)

    def _need(self, request: MemoryRequest) -> MemoryNeed:
        """Compile the requested program, and return the memory that it needs."""
        step = start(self._model_of(request), request.options)
        forward = replace(step, options=replace(step.options, forward_only=True))
        beside = run_passes(forward).executable if self._has_forward_program else None
        need = memory_need(run_passes(step).executable, self.device.device, beside)
        assert need is not None, "only devices with a limit look for remedies"
        return need

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

    def compiled(self) -> Executable:
        """Compile, or load the executable from the cache."""
        folder = cache_folder(self.options)
        if folder is None:
            return self.lowered()
        return compiled_once(folder, self.graph, self.key(), self.lowered)

    def cached_file(self) -> Path | None:
        """The file of the executable in the cache; None without a cache."""
        folder = cache_folder(self.options)
        return None if folder is None else cached_file(folder, self.key())

    def lowered(self, *, forward_only: bool = False) -> Executable:
        """Compile the graph of a step, or its forward pass only."""
        step = self.final_step
        return run_passes(replace(step, options=replace(step.options, forward_only=forward_only))).executable

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
        """Return the key of the executable in the cache; training options are part of the graph that it hashes."""
        return cache_key(self.graph, replace(self.compile_options(), training=None), self.gradients)

    def compile_options(self) -> CompileOptions:
        """Return all options of the compiler; raise EmulatorError for invalid values."""
        return with_streams(
            self.step.options,
            self.options,
            self.flow,
            self.source.properties,
            [tensor.id for tensor in self.graph.with_role(Role.INPUT)],
        )

    def _on_io_tiles(self) -> list[str]:
        """Inputs and anchors that I/O tiles exchange with the host."""
        anchors = [id for id in self.flow.anchors() if self.flow.art(id).tileSet() is TileSet.IO]
        return [*self.source.properties.on_io_tiles, *anchors]


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


def cache_folder(options: SessionOptions, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the folder of saved executables, from the environment or the options; None without caching."""
    for name in _CACHE_VARIABLES:
        if environment.get(name):
            return environment[name]
    return options.cachePath if options.enableEngineCaching else None
