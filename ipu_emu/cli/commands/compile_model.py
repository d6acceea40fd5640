"""CompileRequest: a model, by name or from a file, with what a command says of it, to be compiled and not run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os.path import isfile
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import psutil

from gcl.drawing.units import memory
from ipu_emu import popart
from ipu_emu.cli.commands.onnx_argument import OnnxFile
from ipu_emu.compiler.options import TrainingOptions
from ipu_emu.compiler.out_of_memory import Remedy, cheapest, remedies
from ipu_emu.compiler.pipeline import CompileState, run_passes, start
from ipu_emu.errors import EmulatorError
from ipu_emu.graph.onnx_model import to_model
from ipu_emu.hardware import System
from ipu_emu.models import CATALOGUE, Model, named
from ipu_emu.popart.options.memory_advice import MEMORY_ADVICE
from ipu_emu.popart.session.compilation import Compilation
from ipu_emu.predict import of_model
from ipu_emu.program.executable import Executable

__all__ = ["LOCATIONS", "OPTIMISERS", "CompileRequest", "Compiled"]

#: How often the weights are in memory at most while a model is compiled.
_COPIES = 2

#: The session option that says where tensors of a kind are kept.
LOCATIONS = {
    "weights": "weightTensorLocationSettings",
    "states": "optimizerStateTensorLocationSettings",
    "activations": "activationTensorLocationSettings",
    "accumulators": "accumulatorTensorLocationSettings",
}

OPTIMISERS: dict[str, Any] = {
    "sgd": lambda: popart.SGD({"defaultLearningRate": (0.1, False)}),
    "momentum": lambda: popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)}),
    "adam": lambda: popart.Adam({"defaultLearningRate": (0.1, False)}),
    "lamb": lambda: popart.Adam({"defaultLearningRate": (0.1, False)}, mode=popart.AdamMode.Lamb),
}

#: Bytes of each value of a state where it is not of the type of its weight: Adam's are FLOAT.
_STATE_BYTES = {"adam": 4, "lamb": 4}


@dataclass(frozen=True)
class Compiled:
    """``executable`` is what the compiler made of the step of ``compilation``."""

    compilation: Compilation
    executable: Executable

    def remedies(self, ipu: int, missing: int) -> list[Remedy]:
        """Return what would best save so many bytes on an IPU."""
        step, device = self.compilation.final_step, self.compilation.device.device
        return cheapest(remedies(self.executable, device, ipu, step=step, advice=MEMORY_ADVICE), missing)


@dataclass(frozen=True)
class CompileRequest:
    """``model`` is a name of the catalogue or an ONNX file; with ``loss`` it is trained, a tensor's id for a file."""

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

    @property
    def title(self) -> str:
        """What is compiled, in a line."""
        what = f"training with {self.optimiser}" if self.training else "inference"
        parts = [self.model, what, f"micro-batches of {self.micro_batch}"]
        summed = "accumulated" if self.training else "per step"
        parts += [f"{self.accumulation} {summed}"] if self.accumulation > 1 else []
        parts += [f"{self.replicas} replicas"] if self.replicas > 1 else []
        parts += [f"{self.ipus} IPUs per replica"] if self.ipus > 1 else []
        parts += [f"recomputation ({self.recompute})"] if self.recompute else []
        parts += [f"{' and '.join(self.off_chip)} off chip"] if self.off_chip else []
        parts += [f"{' and '.join(self.shared)} shared by the replicas"] if self.shared else []
        parts += [f"{self.prefetch} places for each input in Streaming Memory"] if self.prefetch > 1 else []
        return ", ".join([*parts, *([f"{self.schedule} pipeline"] if self.schedule else [])])

    @property
    def samples(self) -> int:
        """Samples of a step."""
        return self.micro_batch * self.accumulation * self.replicas

    @property
    def micro_batch(self) -> int:
        """Samples of a micro-batch; a file may say how many."""
        return self.batch if self.model in CATALOGUE else self._file.batch

    def estimated(self) -> int | None:
        """Bytes of data per replica of a named model, estimated by formula; None for a file."""
        if self.model not in CATALOGUE:
            return None
        variables = of_model(named(self.model, batch=self.batch, dtype=np.dtype(self.dtype)))
        itemsize = np.dtype(self.dtype).itemsize
        if not self.training:
            return variables.inference(itemsize)
        own = _STATE_BYTES.get(self.optimiser, itemsize)
        return variables.training(itemsize, batch=self.batch, optimiser=self.optimiser, state_itemsize=own)

    def compiled(self, system: System) -> Compiled:
        """Compile for IPUs of ``system``, also what does not fit them; raise EmulatorError for what cannot be."""
        with NamedTemporaryFile(prefix="ipu-emu-") as zeros:
            compilation = self._compilation(*self._model(zeros), system)
        return Compiled(compilation, compilation.compiled())

    def compiled_until(self, system: System, stop_after: str) -> CompileState:
        """Return what the compiler has made after the pass of that name."""
        with NamedTemporaryFile(prefix="ipu-emu-") as zeros:
            compilation = self._compilation(*self._model(zeros), system)
        return run_passes(start(compilation.model, compilation.compile_options()), stop_after=stop_after)

    def _compilation(
        self, model: bytes | str, anchor: str, shapes: popart.InputShapeInfo | None, system: System
    ) -> Compilation:
        device = popart.DeviceManager(system).createOfflineIPUDevice({"numIPUs": self.ipus * self.replicas})
        flow = popart.DataFlow(1 if self.training else self.accumulation, [anchor])
        training = TrainingOptions(anchor, OPTIMISERS[self.optimiser]().plan) if self.training else None
        return Compilation(model, flow, device, shapes, self._options(), training)

    def _options(self) -> popart.SessionOptions:
        options = popart.SessionOptions()
        if self.replicas > 1:
            options.enableReplicatedGraphs, options.replicatedGraphCount = True, self.replicas
        if self.training and self.accumulation > 1:
            options.enableGradientAccumulation, options.accumulationFactor = True, self.accumulation
        if self.ipus > 1:
            options.virtualGraphMode = popart.VirtualGraphMode.Auto
        if self.schedule:
            options.enablePipelining, options.pipelineSchedule = True, self.schedule
        if self.recompute:
            options.autoRecomputation = popart.RecomputationType[self.recompute]
        options.defaultBufferingDepth = self.prefetch
        for kind in self.off_chip:
            getattr(options, LOCATIONS[kind]).location.storage = popart.TensorStorage.OffChip
        for kind in self.shared:
            location = getattr(options, LOCATIONS[kind]).location
            location.replicatedTensorSharding = popart.ReplicatedTensorSharding.On
        return options

    def _model(self, zeros: Any) -> tuple[bytes | str, str, popart.InputShapeInfo | None]:
        """The model, what is anchored (in training the loss), and shapes of inputs; weights may lie in ``zeros``."""
        if self.model in CATALOGUE:
            model = named(self.model, batch=self.batch, dtype=np.dtype(self.dtype))
            return _proto(model, zeros), model.loss if self.training else model.output, None
        file = self._file
        return file.path, file.loss(self.loss) if self.training else file.outputs[0], file.shapes

    @cached_property
    def _file(self) -> OnnxFile:
        if not isfile(self.model):
            raise EmulatorError(
                f"'{self.model}' is neither a model name nor a file; use the path of an ONNX file, or "
                f"{', '.join(CATALOGUE)}"
            )
        return OnnxFile.read(self.model, self.batch)


def _proto(model: Model, zeros: Any) -> bytes:
    """A model whose weights are a file without space on the disk; raise EmulatorError where memory is short."""
    data = model.graph.data
    nbytes = sum(value.size * value.itemsize for value in data.values())
    free = psutil.virtual_memory().available
    if _COPIES * nbytes > free:
        raise EmulatorError(
            f"weights of {memory(nbytes)} are to be compiled, which takes {memory(_COPIES * nbytes)}, and "
            f"{memory(free)} of memory are free; use a smaller model, or FLOAT16"
        )
    zeros.truncate(nbytes)
    return to_model(model.graph, opset=popart.defaultAiOnnxOpset, external=(tuple(data), zeros.name))
