"""Vision transformers: ViT, DINO and Swin as blocks."""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.predict.layer_parameters import dense, layer_norm
from ipu_emu.predict.networks.block import LOSS_STEPS, BlockKind, Network, NetworkBlock, images, weighted
from ipu_emu.predict.networks.transformers import NORM, SOFTMAX, SUMS, TransformerLayer

_FAMILY = "vision transformer"


def _patches(width: int, size: int, patch: int, *, class_token: bool) -> NetworkBlock:
    count, inputs = (size // patch) ** 2, 3 * patch * patch
    weights = inputs * width + width
    positions = (count + 1) * width + width if class_token else 0
    return NetworkBlock(
        "patches",
        BlockKind.STEM,
        weights + positions,
        products=(replace(weighted(count, inputs, width, data=True), kind="convolution", operand=3.0 * size * size),),
        vector=SUMS * count * width,
        steps=3,  # transposition, and the class token before the patches
        training_steps=4,
        stashed=3 * size * size,
        output=(count + class_token) * width,
        transient=count * width,
    )


def _classifier(width: int, classes: int, positions: int) -> NetworkBlock:
    return NetworkBlock(
        "classifier",
        BlockKind.HEAD,
        layer_norm(width).total + dense(width, classes).total,
        products=(weighted(1, width, classes),),
        vector=NORM * positions * width + SOFTMAX * classes,
        steps=2,  # norm, and the first position of each sequence
        training_steps=3 + LOSS_STEPS,
        stashed=positions * width + width,
        transient=2 * classes,
    )


def vit(
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    size: int = 224,
    patch: int = 16,
    classes: int = 1000,
) -> Network:
    """ViT: a class token before the patches of an image."""
    length = (size // patch) ** 2 + 1
    stack = TransformerLayer(length, width, heads).stack(layers)
    blocks = (_patches(width, size, patch, class_token=True), *stack, _classifier(width, classes, length))
    return images("vit", blocks, size, classes, family=_FAMILY)


def _times(block: NetworkBlock, factor: float) -> NetworkBlock:
    """Return ``block`` with the operations and values of ``factor`` samples, and the same parameters."""
    names = ("vector", "idle", "looked_up", "stashed", "output", "transient", "unsliced")
    products = tuple(product.of(factor) for product in block.products)
    return replace(block, products=products, **{name: factor * getattr(block, name) for name in names})


def dino(*, layers: int = 12, width: int = 384, heads: int = 6, local_crops: int = 8) -> Network:
    """DINO: a student sees two crops of 224 and ``local_crops`` of 96 pixels, a teacher (not trained) the two."""
    blocks: list[NetworkBlock] = []
    for name, frozen, local in (("student", False, local_crops), ("teacher", True, 0)):
        large, small = (
            (
                _patches(width, size, 16, class_token=True),
                *TransformerLayer((size // 16) ** 2 + 1, width, heads).stack(layers),
            )
            for size in (224, 96)
        )
        for block, other in zip(large, small, strict=True):
            both = _times(block, 2)
            crops = {
                field: getattr(both, field) + local * getattr(other, field)
                for field in ("vector", "stashed", "output")
            }
            steps = {field: getattr(block, field) * (2 if local else 1) for field in ("steps", "training_steps")}
            products = (*both.products, *(product.of(local) for product in other.products if local))
            seen = replace(both, products=products, **crops, **steps)
            blocks.append(replace(seen, name=f"{name}/{block.name}", frozen=frozen, extra=frozen))
        norm = NetworkBlock(f"{name}/norm", BlockKind.HEAD, layer_norm(width).total, frozen=frozen, extra=frozen)
        blocks += [norm, _projection(f"{name}/projection", width, 2 + local, frozen=frozen)]
    order = sorted(range(len(blocks)), key=lambda index: index % (len(blocks) // 2))
    values = 3 * (2 * 224 * 224 + local_crops * 96 * 96)
    return Network("dino-vit", _FAMILY, "images", tuple(blocks[index] for index in order), values, "uint8", 0)


def _projection(name: str, width: int, crops: int, *, frozen: bool) -> NetworkBlock:
    """DINO's head: width to 2,048, 2,048 and 256, then 65,536 prototypes."""
    layers = dense(width, 2048) + dense(2048, 2048) + dense(2048, 256) + dense(256, 65536, bias=False)
    return NetworkBlock(
        name,
        BlockKind.HEAD,
        layers.total,
        products=tuple(
            weighted(crops, inputs, outputs)
            for inputs, outputs in ((width, 2048), (2048, 2048), (2048, 256), (256, 65536))
        ),
        vector=SOFTMAX * crops * 65536,
        training_steps=3 + LOSS_STEPS,
        stashed=crops * (2 * 2048 + 256 + 65536),
        transient=crops * 65536,
        extra=True,
        frozen=frozen,
    )


def swin(
    *,
    depths: tuple[int, ...] = (2, 2, 6, 2),
    width: int = 96,
    heads: int = 3,
    window: int = 7,
    size: int = 224,
    classes: int = 1000,
) -> Network:
    """Swin: attention within windows; between stages four neighbours become one position of twice the width."""
    side, blocks = size // 4, []
    stem = _patches(width, size, 4, class_token=False)
    blocks.append(replace(stem, parameters=stem.parameters + layer_norm(width).total))
    for stage, depth in enumerate(depths):
        if stage:
            side //= 2
            weights = 4 * width * 2 * width
            merge = NetworkBlock(
                f"merge{stage}",
                BlockKind.LAYER,
                weights + layer_norm(4 * width).total,
                products=(weighted(side * side, 4 * width, 2 * width),),
                steps=2,
                training_steps=2,
                vector=NORM * side * side * 4 * width,
                stashed=side * side * 8 * width,
                output=side * side * 2 * width,
                transient=side * side * 4 * width,
            )
            blocks.append(merge)
            width, heads = 2 * width, 2 * heads
        layer = TransformerLayer(side * side, width, heads, context=window * window)
        bias = (2 * window - 1) ** 2 * heads
        for index in range(depth):
            name = f"stage{stage}/layer{index}"
            blocks += [
                layer.attention(f"{name}/attention", extra_parameters=bias),
                layer.feed_forward(f"{name}/feed-forward"),
            ]
    blocks.append(_classifier(width, classes, side * side))
    return images("swin", blocks, size, classes, family=_FAMILY)
