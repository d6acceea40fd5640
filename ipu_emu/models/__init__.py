"""models: well-known networks with a loss as graph builders, for benchmarks, prediction, examples and tests."""

from ipu_emu.models.bert import bert
from ipu_emu.models.catalogue import CATALOGUE, named
from ipu_emu.models.gpt2 import gpt2
from ipu_emu.models.mlp import mlp
from ipu_emu.models.model import Model, ModelSize
from ipu_emu.models.resnet import resnet8, resnet50
from ipu_emu.models.transformer import transformer
from ipu_emu.models.vit import vit

__all__ = [
    "CATALOGUE", "Model", "ModelSize", "bert", "gpt2", "mlp", "named", "resnet8", "resnet50", "transformer", "vit",
]  # fmt: skip
