"""catalogue: networks by name, with the sizes of their papers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.models.bert import bert
from ipu_emu.models.gpt2 import gpt2
from ipu_emu.models.mlp import mlp
from ipu_emu.models.model import Model
from ipu_emu.models.resnet import resnet8, resnet50
from ipu_emu.models.transformer import transformer
from ipu_emu.models.vit import vit
from popdist_py.messages.suggestion import did_you_mean


@dataclass(frozen=True)
class CatalogueEntry:
    """``build(batch=, dtype=, seed=)`` returns the network."""

    build: Callable[..., Model]
    summary: str


CATALOGUE = {
    "mlp": CatalogueEntry(mlp, "784-512-512-10, fully connected"),
    "resnet8": CatalogueEntry(resnet8, "images of 32 x 32, 10 classes"),
    "resnet50": CatalogueEntry(resnet50, "images of 224 x 224, 1,000 classes; version 1.5"),
    "transformer": CatalogueEntry(transformer, "2 layers of 256, 128 characters"),
    "bert-base": CatalogueEntry(bert, "12 layers of 768, 128 tokens"),
    "bert-large": CatalogueEntry(partial(bert, layers=24, width=1024, heads=16), "24 layers of 1,024, 128 tokens"),
    "gpt2": CatalogueEntry(gpt2, "12 layers of 768, 1,024 tokens"),
    "gpt2-medium": CatalogueEntry(partial(gpt2, layers=24, width=1024, heads=16), "24 layers of 1,024, 1,024 tokens"),
    "gpt2-large": CatalogueEntry(partial(gpt2, layers=36, width=1280, heads=20), "36 layers of 1,280, 1,024 tokens"),
    "gpt2-xl": CatalogueEntry(partial(gpt2, layers=48, width=1600, heads=25), "48 layers of 1,600, 1,024 tokens"),
    "vit-b16": CatalogueEntry(vit, "12 layers of 768, images of 224 x 224 in patches of 16"),
    "vit-l16": CatalogueEntry(partial(vit, layers=24, width=1024, heads=16), "24 layers of 1,024, patches of 16"),
}


def suggested(name: str) -> str:
    """The end of an error message: all models, and the one most like ``name``."""
    return f"use {', '.join(CATALOGUE)}{did_you_mean(name, CATALOGUE)}"


def named(name: str, *, batch: int = 1, dtype: Any = np.float16, seed: int | None = None, **sizes: int) -> Model:
    """Return a network by name; without a ``seed`` its weights are zeros, which suffice to count, cost or plan it.

    ``sizes`` replace those of the paper, such as ``length`` of a transformer.
    """
    if name not in CATALOGUE:
        raise EmulatorError(f"there is no model '{name}'; {suggested(name)}")
    return CATALOGUE[name].build(batch=batch, dtype=dtype, seed=seed, **sizes)
