"""Network table: networks by name, with the sizes of their papers; some take a length, a vocabulary or a size."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ipu_emu.errors import EmulatorError
from ipu_emu.predict.networks.block import Network
from ipu_emu.predict.networks.convolutional import efficientnet, mlp, resnet, resnet8, resnet50, resnext101, unet
from ipu_emu.predict.networks.recurrent import rnnt
from ipu_emu.predict.networks.transformers import bert, bert_span, causal, gpt2, llama, t5
from ipu_emu.predict.networks.vision_transformers import dino, swin, vit
from popdist_py.messages.suggestion import closest


@dataclass(frozen=True)
class NetworkEntry:
    """``build`` returns the network; its keywords are the options that the network takes."""

    build: Callable[..., Network]
    summary: str


#: Options of a network on the command line.
_SIZES = ("length", "vocabulary", "masked", "size")
#: What the side of an image is a multiple of: a patch, or the pixels that become one in the last stage.
_MULTIPLES = {"vit-": 16, "swin-": 32, "unet": 16}
_LARGE = {"layers": 24, "width": 1024, "heads": 16}
#: Width, depth and side of images of EfficientNet-B0 to B7.
_EFFICIENTNETS = (
    (1.0, 1.0, 224),
    (1.0, 1.1, 240),
    (1.1, 1.2, 260),
    (1.2, 1.4, 300),
    (1.4, 1.8, 380),
    (1.6, 2.2, 456),
    (1.8, 2.6, 528),
    (2.0, 3.1, 600),
)

NETWORKS = {
    "mlp": NetworkEntry(mlp, "784-512-512-10, fully connected"),
    "resnet8": NetworkEntry(resnet8, "images of 32 x 32, 10 classes"),
    "resnet50": NetworkEntry(resnet50, "images of 224 x 224, version 1.5"),
    "resnet101": NetworkEntry(partial(resnet, (3, 4, 23, 3)), "images of 224 x 224, version 1.5"),
    "resnet152": NetworkEntry(partial(resnet, (3, 8, 36, 3)), "images of 224 x 224, version 1.5"),
    "resnext101": NetworkEntry(resnext101, "ResNeXt-101, 32 groups of 4 channels"),
    "resnext101-32x8d": NetworkEntry(partial(resnext101, width=8), "ResNeXt-101, 32 groups of 8 channels"),
    **{
        f"efficientnet-b{number}": NetworkEntry(
            partial(efficientnet, width=width, depth=depth, size=size), f"images of {size} x {size}"
        )
        for number, (width, depth, size) in enumerate(_EFFICIENTNETS)
    },
    "unet": NetworkEntry(unet, "images of 512 x 512, 2 classes per pixel"),
    "transformer": NetworkEntry(causal, "2 layers of 256, 128 characters"),
    "bert-base": NetworkEntry(bert, "12 layers of 768, 128 tokens"),
    "bert-large": NetworkEntry(partial(bert, **_LARGE), "24 layers of 1,024, 128 tokens"),
    "bert-base-squad": NetworkEntry(bert_span, "12 layers of 768, 384 tokens, fine-tuned for SQuAD"),
    "bert-large-squad": NetworkEntry(
        partial(bert_span, **_LARGE), "24 layers of 1,024, 384 tokens, fine-tuned for SQuAD"
    ),
    "gpt2": NetworkEntry(gpt2, "12 layers of 768, 1,024 tokens"),
    "gpt2-medium": NetworkEntry(partial(gpt2, **_LARGE), "24 layers of 1,024, 1,024 tokens"),
    "gpt2-large": NetworkEntry(partial(gpt2, layers=36, width=1280, heads=20), "36 layers of 1,280, 1,024 tokens"),
    "gpt2-xl": NetworkEntry(partial(gpt2, layers=48, width=1600, heads=25), "48 layers of 1,600, 1,024 tokens"),
    "t5-small": NetworkEntry(t5, "6 + 6 layers of 512, 512 tokens to 114"),
    "t5-base": NetworkEntry(partial(t5, layers=12, width=768, heads=12, inner=3072), "12 + 12 layers of 768"),
    "t5-large": NetworkEntry(partial(t5, layers=24, width=1024, heads=16, inner=4096), "24 + 24 layers of 1,024"),
    "t5-3b": NetworkEntry(
        partial(t5, layers=24, width=1024, heads=32, inner=16384, kv=4096), "24 + 24 layers of 1,024, 16,384 inside"
    ),
    "llama-1b": NetworkEntry(
        partial(llama, layers=22, width=2048, heads=32, kv=256, inner=5632), "22 layers of 2,048, as TinyLlama"
    ),
    "llama-7b": NetworkEntry(llama, "32 layers of 4,096, 2,048 tokens"),
    "vit-s16": NetworkEntry(partial(vit, width=384, heads=6), "12 layers of 384, patches of 16"),
    "vit-b16": NetworkEntry(vit, "12 layers of 768, images of 224 x 224 in patches of 16"),
    "vit-l16": NetworkEntry(partial(vit, **_LARGE), "24 layers of 1,024, patches of 16"),
    "dino-vit": NetworkEntry(dino, "ViT-S/16 as student and teacher, 2 crops of 224 and 8 of 96"),
    "swin-tiny": NetworkEntry(swin, "12 layers, 96 to 768 wide, windows of 7 x 7"),
    "swin-base": NetworkEntry(
        partial(swin, depths=(2, 2, 18, 2), width=128, heads=4), "24 layers, 128 to 1,024 wide"
    ),
    "rnnt": NetworkEntry(rnnt, "RNN-T, 5 LSTM of 1,024, 500 frames to 125 word pieces"),
}


def network(name: str, **options: Any) -> Network:
    """The network called ``name``; options that are None keep its own sizes. Raise EmulatorError for unknown ones."""
    entry = NETWORKS.get(name)
    if entry is None:
        if os.sep in name or name.endswith(".onnx"):
            what = "a folder, not an ONNX file" if os.path.isdir(name) else "not a file"
            raise EmulatorError(f"{name} is {what}; name an ONNX file, or a network: {', '.join(NETWORKS)}")
        close = closest(name, NETWORKS)
        hint = f"did you mean {close}? Else " if close else ""
        raise EmulatorError(f"there is no network '{name}' to predict; {hint}use {', '.join(NETWORKS)}")
    options_set = {option: value for option, value in options.items() if value is not None}
    takes = inspect.signature(entry.build).parameters
    wrong = [option for option in options_set if option not in takes]
    if wrong:
        settable = [f"--{option}" for option in _SIZES if option in takes]
        raise EmulatorError(
            f"{name} has no {' and no '.join(wrong)} to set; "
            + (f"it takes {', '.join(settable)}" if settable else "leave it out")
        )
    _check(name, options_set)
    return replace(entry.build(**options_set), name=name)


def _own(name: str, option: str) -> int | None:
    """The size that the network has without options."""
    parameter = inspect.signature(NETWORKS[name].build).parameters.get(option)
    return parameter.default if parameter is not None and isinstance(parameter.default, int) else None


def _check(name: str, options: dict[str, Any]) -> None:
    for option, value in options.items():
        if isinstance(value, int) and value < 1:
            raise EmulatorError(f"{name} with {option} {value} is not possible; use at least 1")
    for start, step in _MULTIPLES.items():
        size = options.get("size", step)
        if name.startswith(start) and size % step:
            near = max(1, round(size / step)) * step
            raise EmulatorError(
                f"{name} with images of {size} x {size} is not possible; use a multiple of {step}, such as {near}"
            )
    length, masked = options.get("length", _own(name, "length")), options.get("masked")
    if length and masked and masked > length:
        raise EmulatorError(f"{masked} masked positions of {length} are not possible; use at most {length}")
    if name.startswith("bert") and (length or 0) > 512:
        raise EmulatorError(f"{name} has 512 positions, and length {length} was requested; use at most 512")
    if name.startswith("gpt2") and (length or 0) > 1024:
        raise EmulatorError(f"{name} has 1024 positions, and length {length} was requested; use at most 1024")
