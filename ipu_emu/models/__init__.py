"""models: well-known networks as graph builders, with a loss, for benchmarks, prediction, examples and tests."""

from ipu_emu.models.mlp import mlp
from ipu_emu.models.model import Model
from ipu_emu.models.resnet import resnet8, resnet50
from ipu_emu.models.transformer import transformer

__all__ = ["Model", "mlp", "resnet8", "resnet50", "transformer"]
