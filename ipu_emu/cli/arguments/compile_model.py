"""CompileRequest: a model, by name or from a file, with the options of a command; it is compiled but not run."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, replace
from functools import cached_property
from os.path import isfile
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from gcl.drawing.units import counted, memory
from ipu_emu.cli.arguments.onnx_argument import OnnxFile
from ipu_emu.compiler.annotations import PIPELINE_STAGE
from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.memory.tensor_locations import LocationRule, StorageChoice, TensorLocations
from ipu_emu.compiler.optimisers.optimiser_table import OPTIMISERS
from ipu_emu.compiler.options import CompileOptions, HostStreams, TrainingOptions
from ipu_emu.compiler.pipeline import PASSES, CompileState, run_passes
from ipu_emu.compiler.placement.placement_options import PipelineOptions, PlacementMode, PlacementOptions
from ipu_emu.compiler.placement.placement_rules import check_ipus_exist
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Role
from ipu_emu.hardware import Connection, Device, DeviceKind, System
from ipu_emu.hostio import DataMode, mode_of
from ipu_emu.models import CATALOGUE, Model, named
from ipu_emu.models.catalogue import suggested
from ipu_emu.onnx.properties import ModelProperties
from ipu_emu.ops.normalisation.shared_batch_norm import GROUP_SIZE
from ipu_emu.predict import Prediction, Profile, of_model, predict
from ipu_emu.predict.calibration.rows import layer_counts
from ipu_emu.predict.graph_placement import op_places
from ipu_emu.predict.job import Job, smallest_pod
from ipu_emu.predict.networks import Network, masked_positions, network
from ipu_emu.predict.networks.graph_network import graph_network
from ipu_emu.predict.placement import can_divide
from ipu_emu.program.anchors import Anchor, Return, StepShape
from ipu_emu.program.executable import Executable
from ipu_emu.session.footprint import MemoryNeed, memory_need

#: The most copies of the weights in memory while a model is compiled.
_COPIES = 2


@dataclass(frozen=True)
class CompiledModel:
    """A model compiled for ``device``."""

    device: Device
    executable: Executable

    @property
    def need(self) -> MemoryNeed:
        """The memory of the fullest IPU."""
        need = memory_need(self.executable, self.device)
        assert need is not None, "an offline device has a limit"
        return need


@dataclass(frozen=True)
class CompileRequest:
    """``model``: a name of the catalogue or an ONNX file; with ``loss`` (for a file, a tensor's id) it is trained.

    ``placement``: layers on each IPU, or ``balanced``. By default files keep the placement of their ops, and other
    models are balanced.
    """

    model: str
    batch: int = 1
    dtype: str = "float16"
    training: bool = True
    loss: str = ""
    optimiser: str = "sgd"
    accumulation: int = 1
    replicas: int = 1
    ipus: int = 1
    schedule: str = ""
    recompute: str = ""
    off_chip: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    prefetch: int = 1
    placement: str = ""
    length: int | None = None
    masked: int | None = None
    bn_span: int = 1
    layers: int | None = None

    @property
    def title(self) -> str:
        """A description of the request, in one line."""
        what = f"training with {self.optimiser}" if self.training else "inference"
        parts = [self.model, what, f"micro-batches of {self.micro_batch}"]
        summed = "accumulated" if self.training else "per step"
        parts += [f"{self.length} tokens"] if self.length else []
        parts += [f"{self.masked} of them masked"] if self.masked else []
        parts += [f"{self.accumulation} {summed}"] if self.accumulation > 1 else []
        parts += [f"{self.replicas} replicas"] if self.replicas > 1 else []
        parts += [f"{self.ipus} IPUs per replica"] if self.ipus > 1 else []
        parts += [f"recomputation ({self.recompute})"] if self.recompute else []
        parts += [f"{' and '.join(self.off_chip)} off chip"] if self.off_chip else []
        parts += [f"{' and '.join(self.shared)} shared by the replicas"] if self.shared else []
        parts += [f"batch statistics of {self.bn_span} replicas"] if self.bn_span > 1 else []
        parts += [f"{self.prefetch} buffers for each input in Streaming Memory"] if self.prefetch > 1 else []
        return ", ".join([*parts, *([f"{self.schedule} pipeline"] if self.schedule else [])])

    @property
    def samples(self) -> int:
        """Samples of a step."""
        return self.micro_batch * self.accumulation * self.replicas

    @property
    def micro_batch(self) -> int:
        """Samples of a micro-batch, which a file may fix."""
        return self.batch if self.model in CATALOGUE else self._file.batch

    @property
    def batch_is_free(self) -> bool:
        """Whether ``batch`` sets the number of samples in a micro-batch."""
        return self.model in CATALOGUE or self._file.has_open_batch

    def estimated(self) -> int | None:
        """Bytes of data per replica of a named model, estimated by formula; None for a file."""
        if self.model not in CATALOGUE:
            return None
        variables = of_model(self._named())
        itemsize = np.dtype(self.dtype).itemsize
        if not self.training:
            return variables.inference(itemsize)
        own = OPTIMISERS[self.optimiser].state_itemsize(itemsize)
        return variables.training(itemsize, batch=self.batch, optimiser=self.optimiser, state_itemsize=own)

    def compiled(self, system: System) -> CompiledModel:
        """Compile for IPUs of ``system``, even if the model does not fit; raise EmulatorError if it is invalid."""
        ipus = self.ipus * self.replicas
        device = Device(DeviceKind.OFFLINE, 0, ipus, system.tiles_per_ipu, system.version, Connection.NEVER)
        return CompiledModel(device, self.compiled_until(PASSES[-1].name, system).executable)

    def compiled_until(self, stop_after: str, system: System | None = None) -> CompileState:
        """Return the compiler's state after the pass ``stop_after``; by default for the smallest Pod."""
        self._check_pipeline()
        graph, anchor = self._read()
        self._share_statistics(graph)
        where = system or smallest_pod(max(4, self.ipus * self.replicas), System.named("pod16"))
        options = self._options(graph, anchor, self._placement(graph, where))
        return run_passes(CompileState(graph, options), stop_after=stop_after)

    def _named(self) -> Model:
        """The graph of a named model, with the same sizes as that of predictions."""
        sizes = {name: getattr(self, name) for name in ("length", "masked") if getattr(self, name) is not None}
        if sizes:
            network(self.model, **sizes)  # checks that the model takes these sizes
        if self.layers is not None:
            builders = {name: inspect.signature(entry.build).parameters for name, entry in CATALOGUE.items()}
            if "layers" not in builders[self.model]:
                others = ", ".join(name for name, parameters in builders.items() if "layers" in parameters)
                raise EmulatorError(f"{self.model} has a fixed number of layers; use one of {others}")
            sizes["layers"] = self.layers
        if self.model.startswith("bert"):
            sizes["masked"] = self.masked or masked_positions(sizes.get("length", 128))
        return named(self.model, batch=self.batch, dtype=np.dtype(self.dtype), **sizes)

    def _check_pipeline(self) -> None:
        if self.model not in CATALOGUE and (self.length or self.masked):
            raise EmulatorError(f"{self.model} has sizes of its own; leave out --length and --masked")
        if self.placement and self.ipus == 1:
            raise EmulatorError("--placement divides layers between IPUs; add --ipus")
        if self.schedule and self.ipus == 1:
            raise EmulatorError("a pipeline needs more than one IPU per replica; add --ipus")
        if self.schedule not in ("", "popart") and self.training and self.accumulation == 1:
            raise EmulatorError(
                f"the {self.schedule} schedule trains with gradient accumulation only; add --accumulation, or use "
                "--schedule popart"
            )

    def _share_statistics(self, graph: Graph) -> None:
        """Let ``bn_span`` replicas share the statistics of each batch normalisation."""
        if self.bn_span == 1 or not self.training:
            return
        if self.replicas % self.bn_span:
            raise EmulatorError(
                f"--bn-span {self.bn_span} does not divide {counted(self.replicas, 'replica')}; use a divisor"
            )
        shared = {GROUP_SIZE: self.bn_span}
        is_norm = [op.type == "BatchNormalization" for op in graph.ops]
        if not any(is_norm):
            raise EmulatorError(f"{self.model} has no batch normalisation; leave out --bn-span")
        graph.ops = [
            replace(op, attributes=dict(op.attributes) | shared) if norm else op
            for op, norm in zip(graph.ops, is_norm, strict=True)
        ]

    def _options(self, graph: Graph, anchor: str, placement: PlacementOptions) -> CompileOptions:
        accumulation, batches = (self.accumulation, 1) if self.training else (1, self.accumulation)
        return CompileOptions(
            step=StepShape(batches, accumulation, self.replicas),
            anchors=(Anchor(anchor, Return.ALL),),
            training=TrainingOptions(anchor, OPTIMISERS[self.optimiser].rule) if self.training else None,
            replicas=self.replicas,
            placement=placement,
            pipeline=PipelineOptions(self.schedule) if self.schedule else None,
            locations=TensorLocations(
                weights=self._location("weights"),
                states=self._location("states"),
                accumulators=self._location("accumulators"),
                activations=self._location("activations"),
                read_from_all=ModelProperties.of(graph.metadata).read_from_all,
            ),
            recomputation=Recomputation(self.recompute or Recomputation.NONE),
            streams=self._streams(graph),
        )

    def _location(self, kind: str) -> LocationRule:
        return LocationRule(StorageChoice(off_chip=kind in self.off_chip, sharded=kind in self.shared))

    def _streams(self, graph: Graph) -> HostStreams:
        properties = ModelProperties.of(graph.metadata)
        ahead = properties.overlapped
        # A pipeline has two buffers, which its schedule needs.
        places = min(self.prefetch, 2) if self.schedule else self.prefetch
        inputs = [tensor.id for tensor in graph.with_role(Role.INPUT) if tensor.id not in ahead]
        staged = dict.fromkeys(inputs, places) if places > 1 else {}
        synthetic = mode_of(os.environ) is DataMode.SYNTHETIC
        return HostStreams(properties.broadcast, ahead, staged, synthetic)

    def _read(self) -> tuple[Graph, str]:
        """The model and its anchors (in training, the loss)."""
        if self.model in CATALOGUE:
            model = self._named()
            return _without_values(model.graph), model.loss if self.training else model.output
        file = self._file
        return file.graph.copy(), file.loss(self.loss) if self.training else file.outputs[0]

    def _placement(self, graph: Graph, system: System) -> PlacementOptions:
        """The IPU and the stage of every op, as in predictions, unless the ops of a file have their own."""
        if self.ipus == 1:
            return PlacementOptions()
        spread = PlacementOptions(PlacementMode.AUTO, self.ipus, (1.0,) * self.ipus)
        if not self.placement and self.model not in CATALOGUE and self._file.names_ipus:
            check_ipus_exist(graph, self.ipus)
            return replace(spread, mode=PlacementMode.MANUAL)
        if not self.placement and self.schedule and any(PIPELINE_STAGE in op.attributes for op in graph.ops):
            return spread
        try:
            job = self._job(system)
        except EmulatorError:
            if self.placement:
                raise
            return spread  # predictions do not support this number of IPUs
        return PlacementOptions(PlacementMode.GIVEN, self.ipus, places=op_places(graph, job))

    def predicted(self, system: System, profile: Profile | None = None, release: str = "") -> Prediction | None:
        """The prediction for the same options; None for replicas of sizes that predictions do not support.

        ``profile`` is the calibration, for ``release``; without it rates are nominal.
        """
        try:
            job = self._job(system)
            return predict(replace(job, release=release or job.release), profile)
        except EmulatorError:
            return None

    def _job(self, system: System) -> Job:
        """The job for predictions."""
        if self.layers is not None:
            raise EmulatorError("predictions have the layers of the network")
        network, dtype = (None, self.dtype) if self.model in CATALOGUE else self._file_network
        if network is not None and (self.placement or not (self.schedule or self._file.names_ipus)):
            network = network.without_homes()  # without a pipeline, stages have no meaning
        job = Job(
            self.model if network is None else network.name,
            system,
            own_network=network,
            replicas=self.replicas,
            ipus=self.ipus,
            batch=self.micro_batch,
            accumulation=self.accumulation,
            training=self.training,
            dtype={"float32": "float"}.get(dtype, dtype),
            optimiser=self.optimiser,
            recompute=self.recompute not in ("", Recomputation.NORM_ONLY.value),  # NORM_ONLY keeps most activations
            schedule=self.schedule or ("sequential" if self.ipus > 1 else "grouped"),
            off_chip=self.off_chip,
            shared=self.shared,
            length=self.length,
            masked=self.masked,
            bn_span=self.bn_span,
            layers=() if self.placement in ("", "balanced") else layer_counts(self.placement),
            overlap_io=False,
        )
        if network is None and not job.layers and not can_divide(job.network, self.ipus):
            divided = graph_network(self._named().graph, self.model, self.batch)
            job = replace(job, own_network=divided, length=None, masked=None)
        # The graphs of named models take images of the same type as the weights.
        return replace(job, input_dtype=job.dtype) if job.network.input_dtype == "uint8" else job

    @cached_property
    def _file_network(self) -> tuple[Network, str]:
        return self._file.network()

    @cached_property
    def _file(self) -> OnnxFile:
        if not isfile(self.model):
            raise EmulatorError(
                f"'{self.model}' is neither a model name nor a file; give the path of an ONNX file, or a model: "
                f"{suggested(self.model)}"
            )
        return OnnxFile.read(self.model, self.batch, self.replicas)


def _without_values(graph: Graph) -> Graph:
    """Return a copy as it is read from a file, inputs and weights first, with zeros for weights."""
    outer = {tensor.id: tensor for role in (Role.INPUT, Role.WEIGHT) for tensor in graph.with_role(role)}
    zeros = _zeros(graph)
    constants = {id: value for id, value in graph.data.items() if id not in zeros}
    return replace(graph.copy(), tensors=outer | graph.tensors, data=zeros | constants)


def _zeros(graph: Graph) -> dict[str, NDArray[Any]]:
    """Weights that take memory only where they are changed; raise EmulatorError without enough memory."""
    data = {weight.id: graph.data[weight.id] for weight in graph.with_role(Role.WEIGHT)}
    nbytes = sum(value.size * value.itemsize for value in graph.data.values())
    free = psutil.virtual_memory().available
    if _COPIES * nbytes > free:
        raise EmulatorError(
            f"compiling weights of {memory(nbytes)} takes {memory(_COPIES * nbytes)} of memory, but only "
            f"{memory(free)} are free; use a smaller model, or FLOAT16"
        )
    return {id: np.zeros(value.shape, value.dtype) for id, value in data.items()}
