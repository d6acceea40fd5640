"""PyTorch modules: four trained by ipu_emu.torch on four replicas, and five programs of PopTorch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.golden.exact_values import integers, numbers, set_tensors
from tests.golden.program import Program, digests

__all__ = ["PROGRAMS"]

_CLASSES = 5


def _mlp(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(12, 33), nn.GELU(), nn.Linear(33, 17), nn.Tanh(), nn.Linear(17, _CLASSES))


def _cnn(nn: Any) -> Any:
    convolutions = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
    convolutions += nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.SiLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(16, _CLASSES))


def _transformer(nn: Any) -> Any:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.25, batch_first=True, activation="gelu")
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(6 * 16, _CLASSES))


def _rotary(nn: Any) -> Any:
    """Attention whose rotations and distances are computed in ``forward``, from constants."""
    import torch

    class Rotary(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

        def forward(self, x: Any) -> Any:
            q, k, v = self._turned(self.q(x)), self._turned(self.k(x)), self.v(x)
            places = torch.linspace(-1.1, 0.9, x.shape[1])
            distances = torch.sqrt((places[:, None] - places) ** 2 + 0.1)
            near = torch.log_softmax(torch.lerp(distances.log1p(), distances.exp(), 0.3), -1)
            return torch.softmax(q @ k.transpose(1, 2) / 4 + near, -1) @ v

        def _turned(self, x: Any) -> Any:
            frequencies = 10000 ** -(torch.arange(8) / 8)
            angles = torch.outer(torch.arange(x.shape[1]).float(), frequencies)
            a, b = x.chunk(2, -1)
            return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    return nn.Sequential(Rotary(), nn.Flatten(), nn.Linear(6 * 16, _CLASSES))


_NETWORKS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (_mlp, (12,)),
    "cnn, batch norm": (_cnn, (3, 10, 10)),
    "transformer, dropout": (_transformer, (6, 16)),
    "rotary attention": (_rotary, (6, 16)),
}


def _made(name: str, rows: int) -> tuple[Any, Any, Any]:
    """The module with exact weights, and its inputs and targets."""
    import torch

    make, shape = _NETWORKS[name]
    x, y = numbers(f"{name}/x", (rows, *shape)), integers(f"{name}/y", (rows,), _CLASSES)
    return set_tensors(make(torch.nn)), torch.from_numpy(x), torch.from_numpy(y).long()


def _train(name: str) -> dict[str, str]:
    """16 steps of AdamW on four replicas; the digests of the losses of both epochs and of the weights."""
    import torch

    import ipu_emu.torch
    import popdist_py

    module, x, y = _made(name, 128)
    rule, losses = torch.optim.AdamW(module.parameters(), 0.01, weight_decay=0.0625), []
    ipu_emu.torch.train(
        module, torch.nn.CrossEntropyLoss(), rule, (x, y), epochs=2, batch_size=16, accumulation=2, shuffle=False,
        progress=False, replicas=None if popdist_py.isPopdistEnvSet() else 4,
        after_epoch=lambda _, loss: losses.append(loss),
    )  # fmt: skip
    return digests(losses=losses, weights=module)


def _with_loss(module: Any) -> Any:
    import torch

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any, target: Any = None) -> Any:
            y = self.module(x)
            return y if target is None else (y, torch.nn.functional.cross_entropy(y.float(), target))

    return WithLoss()


def _poptorch_train(name: str, optimiser: str, *, half: bool = False, ipus: int = 1, A: int = 1) -> dict[str, str]:
    """Three steps of PopTorch, each of ``A`` micro-batches."""
    import torch

    import ipu_emu.poptorch as poptorch

    module, x, y = _made(name, 3 * 4 * A)
    options = poptorch.Options()
    options.Training.gradientAccumulation(A)
    options.outputMode(poptorch.OutputMode.All)
    if ipus > 1:
        module[4] = poptorch.BeginBlock(module[4], ipu_id=1)
        options.setExecutionStrategy(poptorch.PipelinedExecution())
    module, x = (module.half(), x.half()) if half else (module, x)
    model_with_loss = _with_loss(module)
    rule = getattr(torch.optim if hasattr(torch.optim, optimiser) else poptorch.optim, optimiser)(
        module.parameters(), 0.0625
    )
    model, losses = poptorch.trainingModel(model_with_loss, options, rule), []
    for step in range(3):
        part = slice(step * 4 * A, (step + 1) * 4 * A)
        losses.append(model(x[part], y[part])[1].float().numpy())
    model.destroy()
    return digests(losses=np.array(losses), weights=model_with_loss)


def _poptorch_infer(name: str, *, half: bool) -> dict[str, str]:
    import ipu_emu.poptorch as poptorch

    module, x, _ = _made(name, 4)
    module, x = (module.half(), x.half()) if half else (module, x)
    model = poptorch.inferenceModel(module.eval())
    results = model(x).numpy()
    model.destroy()
    return digests(results=results)


_POPTORCH = {
    "mlp, Adam": partial(_poptorch_train, "mlp", "Adam"),
    "cnn, SGD, accumulation, float16": partial(_poptorch_train, "cnn, batch norm", "SGD", half=True, A=2),
    "cnn, RMSprop, pipeline": partial(_poptorch_train, "cnn, batch norm", "RMSprop", ipus=2, A=4),
    "transformer, LAMB": partial(_poptorch_train, "transformer, dropout", "LAMB"),
    "transformer, forward, float16": partial(_poptorch_infer, "transformer, dropout", half=True),
    "mlp, forward": partial(_poptorch_infer, "mlp", half=False),
}

PROGRAMS = {
    **{f"torch: {name}": Program(partial(_train, name), ("torch",), quick=True, spread=True) for name in _NETWORKS},
    **{f"poptorch: {name}": Program(run, ("torch",)) for name, run in _POPTORCH.items()},
}
