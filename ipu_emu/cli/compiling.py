"""compiling: a model, by name or from a file, as the executable of its step, without running it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ipu_emu import popart
from ipu_emu.errors import EmulatorError
from ipu_emu.graph.onnx_model import load_model
from ipu_emu.models import CATALOGUE, named
from ipu_emu.program.executable import Executable

__all__ = ["OPTIMISERS", "Wanted"]

#: What a model file of ONNX can hold.
_MOST_BYTES = 1_900_000_000

OPTIMISERS: dict[str, Any] = {
    "sgd": lambda: popart.SGD({"defaultLearningRate": (0.1, False)}),
    "momentum": lambda: popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)}),
    "adam": lambda: popart.Adam({"defaultLearningRate": (0.1, False)}),
    "lamb": lambda: popart.Adam({"defaultLearningRate": (0.1, False)}, mode=popart.AdamMode.Lamb),
}


@dataclass(frozen=True)
class Wanted:
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

    @property
    def title(self) -> str:
        """What is compiled, in a line."""
        what = f"training with {self.optimiser}" if self.training else "inference"
        parts = [self.model, what, f"micro-batches of {self.batch}"]
        parts += [f"{self.accumulation} accumulated"] if self.accumulation > 1 else []
        parts += [f"{self.replicas} replicas"] if self.replicas > 1 else []
        parts += [f"{self.ipus} IPUs per replica"] if self.ipus > 1 else []
        return ", ".join([*parts, *([f"{self.schedule} pipeline"] if self.schedule else [])])

    def executable(self) -> Executable:
        """Compile; raise EmulatorError for what cannot be."""
        proto, output, loss = self._model()
        session = self._session(proto, output, loss)
        session._prepare()
        made: Executable = session.executable
        return made

    def _session(self, proto: bytes, output: str, loss: str) -> Any:
        device = popart.DeviceManager().createOfflineIPUDevice({"numIPUs": self.ipus * self.replicas})
        if not self.training:
            flow = popart.DataFlow(1, [output])
            return popart.InferenceSession(proto, flow, device, userOptions=self._options())
        optimizer = OPTIMISERS[self.optimiser]()
        return popart.TrainingSession(
            proto, popart.DataFlow(1, [loss]), loss, optimizer, device, userOptions=self._options()
        )

    def _options(self) -> popart.SessionOptions:
        options = popart.SessionOptions()
        if self.replicas > 1:
            options.enableReplicatedGraphs, options.replicatedGraphCount = True, self.replicas
        if self.accumulation > 1:
            options.enableGradientAccumulation, options.accumulationFactor = True, self.accumulation
        if self.ipus > 1:
            options.virtualGraphMode = popart.VirtualGraphMode.Auto
        if self.schedule:
            options.enablePipelining, options.pipelineSchedule = True, self.schedule
        return options

    def _model(self) -> tuple[bytes, str, str]:
        """The serialised model, what inference returns, and the loss."""
        if self.model in CATALOGUE:
            return self._named()
        path = Path(self.model)
        if not path.is_file():
            raise EmulatorError(
                f"'{self.model}' is neither a model nor a file; use {', '.join(CATALOGUE)}, or the path of "
                "an ONNX file"
            )
        proto = path.read_bytes()
        graph = load_model(proto).graph
        if self.training and not self.loss:
            outputs = ", ".join(output.name for output in graph.output)
            raise EmulatorError(
                f"the loss of {path} is not known; add --loss with the id of a tensor (its outputs are {outputs}), "
                "or --inference"
            )
        return proto, graph.output[0].name, self.loss

    def _named(self) -> tuple[bytes, str, str]:
        model = named(self.model, batch=self.batch, dtype=np.dtype(self.dtype))
        nbytes = sum(value.size * value.itemsize for value in model.graph.data.values())
        if nbytes > _MOST_BYTES:
            raise EmulatorError(
                f"{self.model} has {nbytes / 1e9:.1f} GB of weights, more than a model file holds; use float16 or a "
                "smaller model"
            )
        return model.proto, model.output, model.loss
