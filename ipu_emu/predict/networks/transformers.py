"""Transformers: BERT, GPT-2, ViT, DINO, Swin, T5, Llama and a small causal model as blocks.

A layer is two blocks, attention and feed-forward, so that a placement may divide it. For L positions of width h,
and a heads:

    block          parameters                 products              attention    values kept          live at worst
    attention      4 (h h + h) + norm         8 L h h               4 L L h      5 L h + a L L        2 a L L + 4 L h
    feed-forward   8 h h + 5 h + norm         16 L h h              -            9 L h                8 L h

Operations on elements: 8 per element of a normalisation, 6 of a softmax, 10 of a GELU, 4 of bias, dropout, residual.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ipu_emu.predict.layer_parameters import dense, embedding, layer_norm
from ipu_emu.predict.networks.block import LOSS_STEPS, BlockKind, BlockProduct, Network, NetworkBlock, weighted

_NORM, _SOFTMAX, _GELU, _SUMS = 8, 6, 10, 4
#: Parts in which logits of a vocabulary are made, so that not all of them are live at once.
_SLICES = 4


@dataclass(frozen=True)
class _Layer:
    """A transformer layer of width ``h`` over ``length`` positions that attend to ``context`` positions.

    All heads together have ``space`` values in queries, and ``kv`` in keys and in values; both default to ``h``.
    """

    length: int
    h: int
    heads: int
    context: int = 0
    inner: int = 0
    kv: int = 0
    space: int = 0
    bias: bool = True
    norm_bias: bool = True
    gated: bool = False

    @property
    def _norm(self) -> int:
        return self.h * (2 if self.norm_bias else 1)

    def attention(self, name: str, *, extra_parameters: int = 0) -> NetworkBlock:
        h, length, space = self.h, self.length, self.space or self.h
        seen, kv = self.context or length, self.kv or space
        weights = 2 * h * (space + kv)
        scores = self.heads * length * seen
        queries, keys, multiplications = float(length * space), float(seen * space), float(length * seen * space)
        return NetworkBlock(
            name,
            BlockKind.ATTENTION,
            parameters=weights + self.bias * (2 * h + 2 * kv) + self._norm + extra_parameters,
            products=(
                weighted(length, h, space),
                weighted(length, h, kv, count=2),
                weighted(length, space, h),
                BlockProduct("attention", queries, keys, float(scores), multiplications),
                BlockProduct("attention", float(scores), keys, queries, multiplications),
            ),
            vector=(_NORM + _SUMS) * length * h + _SOFTMAX * scores,
            steps=6,  # norm, softmax, and transposition of queries, keys, values and result
            training_steps=6 + 4 * self.bias,
            stashed=length * (3 * h + 2 * (self.kv or h)) + scores,
            output=length * h,
            transient=2 * scores + 4 * length * h,
        )

    def feed_forward(self, name: str) -> NetworkBlock:
        h, length, inner = self.h, self.length, self.inner or 4 * self.h
        weights = (3 if self.gated else 2) * h * inner
        return NetworkBlock(
            name,
            BlockKind.FEED_FORWARD,
            parameters=weights + self.bias * (inner + h) + self._norm,
            products=(weighted(length, h, inner, count=2 if self.gated else 1), weighted(length, inner, h)),
            vector=(_NORM + _SUMS) * length * h + _GELU * length * inner,
            steps=1,
            training_steps=1 + 2 * self.bias,
            stashed=length * (h + (3 if self.gated else 2) * inner),
            output=length * h,
            transient=2 * length * inner,
        )

    def both(self, name: str) -> tuple[NetworkBlock, NetworkBlock]:
        return self.attention(f"{name}/attention"), self.feed_forward(f"{name}/feed-forward")


def _stack(layer: _Layer, layers: int, name: str = "layer") -> tuple[NetworkBlock, ...]:
    return tuple(block for index in range(layers) for block in layer.both(f"{name}{index}"))


def _table(name: str, rows: int, h: int, length: int, *, others: int = 0, norm: bool = False) -> NetworkBlock:
    """A token embedding, with the parameters of ``others`` rows of positions and kinds."""
    parameters = embedding(rows + others, h).total + (layer_norm(h).total if norm else 0)
    sums = (_NORM * norm + _SUMS) * length * h
    return NetworkBlock(
        name,
        BlockKind.EMBEDDING,
        parameters,
        vector=sums,
        steps=1 + bool(others) + norm,
        training_steps=1 + bool(others) + norm,
        looked_up=length * h,
        stashed=length * h * norm,
        output=length * h,
        transient=length * h,
    )


def _logits(name: str, positions: int, h: int, vocabulary: int, *, tied: bool) -> NetworkBlock:
    """Logits of ``positions`` positions after a normalisation."""
    return NetworkBlock(
        name,
        BlockKind.HEAD,
        0 if tied else embedding(vocabulary, h).total,
        products=(weighted(positions, h, vocabulary),),
        vector=_SOFTMAX * positions * vocabulary,
        steps=1,
        training_steps=1 + LOSS_STEPS,
        stashed=positions * h,
        transient=2 * positions * vocabulary / _SLICES,
        unsliced=2 * positions * vocabulary * (1 - 1 / _SLICES),
        tied=tied,
        table=embedding(vocabulary, h).total,
    )


def masked_positions(length: int) -> int:
    """The default number of positions of a sequence whose words BERT predicts: 15.6 %."""
    return max(1, round(0.156 * length))


def bert(
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    length: int = 128,
    vocabulary: int = 30522,
    context: int = 512,
    masked: int | None = None,
) -> Network:
    """BERT with its heads; only ``masked`` positions, by default 15.6 % of them, get logits."""
    positions = masked_positions(length) if masked is None else masked
    table = _table("embedding", vocabulary, width, length, others=context + 2, norm=True)
    words = _logits("words", positions, width, vocabulary, tied=True)
    words = replace(
        words,
        parameters=dense(width, width).total + layer_norm(width).total + vocabulary,
        products=(weighted(positions, width, width), *words.products),
        steps=words.steps + 1,  # the masked positions are looked up
        training_steps=words.training_steps + 3,
        extra=True,
    )
    pooler = NetworkBlock("pooler", BlockKind.HEAD, dense(width, width).total, products=(weighted(1, width, width),))
    pooler = replace(pooler, stashed=2 * width, steps=1, training_steps=2)
    pair = NetworkBlock("pair", BlockKind.HEAD, dense(width, 2).total, products=(weighted(1, width, 2),), extra=True)
    pair = replace(pair, stashed=width, training_steps=1 + LOSS_STEPS)
    blocks = (table, *_stack(_Layer(length, width, heads), layers), pooler, pair, words)
    results, labels = float(positions * vocabulary), 4 * positions
    return Network("bert", "transformer", "sequences", blocks, 2 * length, "int32", labels, 3, 2, results)


def bert_span(
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    length: int = 384,
    vocabulary: int = 30522,
    context: int = 512,
) -> Network:
    """BERT as it is fine-tuned for SQuAD: each position may be the start or the end of the answer; no pooler."""
    table = _table("embedding", vocabulary, width, length, others=context + 2, norm=True)
    span = NetworkBlock(
        "span",
        BlockKind.HEAD,
        dense(width, 2).total,
        products=(weighted(length, width, 2),),
        vector=2 * _SOFTMAX * length,
        training_steps=1 + 2 * LOSS_STEPS,
        stashed=4.0 * length,
        transient=2.0 * length,
    )
    blocks = (table, *_stack(_Layer(length, width, heads), layers), span)
    return Network("bert-span", "transformer", "sequences", blocks, 3 * length, "int32", 8, 3, 2, 2.0 * length)


def _language(name: str, blocks: tuple[NetworkBlock, ...], length: int, vocabulary: int) -> Network:
    """A model with logits and labels at every position."""
    results = float(length * vocabulary)
    return Network(name, "transformer", "sequences", blocks, length, "int32", 4 * length, result_values=results)


def gpt2(
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    length: int = 1024,
    vocabulary: int = 50257,
    context: int = 1024,
) -> Network:
    """GPT-2: the output layer shares the weights of the token embedding."""
    table = _table("embedding", vocabulary, width, length, others=context)
    stack = _stack(_Layer(length, width, heads), layers)
    words = replace(_logits("words", length, width, vocabulary, tied=True), parameters=layer_norm(width).total)
    return _language("gpt2", (table, *stack, words), length, vocabulary)


def causal(*, layers: int = 2, width: int = 256, heads: int = 4, length: int = 128, vocabulary: int = 96) -> Network:
    """A small causal model whose output layer has weights of its own."""
    table = _table("embedding", vocabulary, width, length, others=length)
    stack = _stack(_Layer(length, width, heads), layers)
    words = _logits("words", length, width, vocabulary, tied=False)
    parameters = layer_norm(width).total + dense(width, vocabulary).total
    words = replace(words, parameters=parameters, training_steps=words.training_steps + 1)
    return _language("transformer", (table, *stack, words), length, vocabulary)


def _patches(width: int, size: int, patch: int, *, class_token: bool) -> NetworkBlock:
    count = (size // patch) ** 2
    weights = 3 * patch * patch * width + width
    positions = (count + 1) * width + width if class_token else 0
    return NetworkBlock(
        "patches",
        BlockKind.STEM,
        weights + positions,
        products=(
            BlockProduct(
                "convolution",
                float(3 * size * size),
                float(3 * patch * patch * width),
                float(count * width),
                float(count * 3 * patch * patch * width),
                data=True,
            ),
        ),
        vector=_SUMS * count * width,
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
        vector=_NORM * positions * width + _SOFTMAX * classes,
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
    stack = _stack(_Layer(length, width, heads), layers)
    blocks = (_patches(width, size, patch, class_token=True), *stack, _classifier(width, classes, length))
    return Network(
        "vit", "vision transformer", "images", blocks, 3 * size * size, "uint8", result_values=float(classes)
    )


def _times(block: NetworkBlock, factor: float) -> NetworkBlock:
    """Return ``block`` with the operations and values of ``factor`` samples, and the same parameters."""
    names = (
        "vector",
        "idle",
        "looked_up",
        "stashed",
        "output",
        "transient",
        "unsliced",
    )
    products = tuple(product.of(factor) for product in block.products)
    return replace(block, products=products, **{name: factor * getattr(block, name) for name in names})


def dino(*, layers: int = 12, width: int = 384, heads: int = 6, local_crops: int = 8) -> Network:
    """DINO: a student sees two crops of 224 and ``local_crops`` of 96 pixels, a teacher (not trained) the two."""
    blocks: list[NetworkBlock] = []
    for name, frozen, local in (("student", False, local_crops), ("teacher", True, 0)):
        large, small = (
            (
                _patches(width, size, 16, class_token=True),
                *_stack(_Layer((size // 16) ** 2 + 1, width, heads), layers),
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
            blocks.append(
                replace(
                    both,
                    products=products,
                    **crops,
                    **steps,
                    name=f"{name}/{block.name}",
                    frozen=frozen,
                    extra=frozen,
                )
            )
        norm = NetworkBlock(f"{name}/norm", BlockKind.HEAD, layer_norm(width).total, frozen=frozen, extra=frozen)
        blocks += [norm, _projection(f"{name}/projection", width, 2 + local, frozen=frozen)]
    order = sorted(range(len(blocks)), key=lambda index: index % (len(blocks) // 2))
    values = 3 * (2 * 224 * 224 + local_crops * 96 * 96)
    return Network(
        "dino-vit", "vision transformer", "images", tuple(blocks[index] for index in order), values, "uint8", 0
    )


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
        vector=_SOFTMAX * crops * 65536,
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
                vector=_NORM * side * side * 4 * width,
                stashed=side * side * 8 * width,
                output=side * side * 2 * width,
                transient=side * side * 4 * width,
            )
            blocks.append(merge)
            width, heads = 2 * width, 2 * heads
        layer = _Layer(side * side, width, heads, context=window * window)
        bias = (2 * window - 1) ** 2 * heads
        for index in range(depth):
            name = f"stage{stage}/layer{index}"
            blocks += [
                layer.attention(f"{name}/attention", extra_parameters=bias),
                layer.feed_forward(f"{name}/feed-forward"),
            ]
    blocks.append(_classifier(width, classes, side * side))
    return Network(
        "swin",
        "vision transformer",
        "images",
        tuple(blocks),
        3 * size * size,
        "uint8",
        result_values=float(classes),
    )


def t5(
    *,
    layers: int = 6,
    width: int = 512,
    heads: int = 8,
    inner: int = 2048,
    kv: int = 0,
    length: int = 512,
    target: int = 114,
    vocabulary: int = 32128,
) -> Network:
    """T5: encoder and decoder without biases; all tables are one. ``kv``: width of all heads, if not ``width``."""
    encoder = _Layer(length, width, heads, inner=inner, space=kv, bias=False, norm_bias=False)
    decoder = _Layer(target, width, heads, inner=inner, space=kv, bias=False, norm_bias=False)
    cross = replace(decoder, context=length)
    blocks = [_table("embedding", vocabulary, width, length + target)]
    for index in range(layers):
        first = 32 * heads * (index == 0)  # the table of relative positions
        blocks.append(encoder.attention(f"encoder{index}/attention", extra_parameters=first))
        blocks.append(encoder.feed_forward(f"encoder{index}/feed-forward"))
    for index in range(layers):
        first = 32 * heads * (index == 0)
        blocks.append(decoder.attention(f"decoder{index}/attention", extra_parameters=first))
        blocks.append(cross.attention(f"decoder{index}/cross"))
        blocks.append(decoder.feed_forward(f"decoder{index}/feed-forward"))
    words = replace(_logits("words", target, width, vocabulary, tied=True), parameters=2 * width)
    return Network(
        "t5",
        "transformer",
        "sequences",
        (*blocks, words),
        length + target,
        "int32",
        4 * target,
        inputs=2,
        result_values=float(target * vocabulary),
    )


def llama(
    *,
    layers: int = 32,
    width: int = 4096,
    heads: int = 32,
    kv: int = 4096,
    inner: int = 11008,
    length: int = 2048,
    vocabulary: int = 32000,
) -> Network:
    """Llama: gated feed-forward, no biases, an output layer of its own; ``kv``: width of keys and of values."""
    layer = _Layer(length, width, heads, inner=inner, kv=kv, bias=False, norm_bias=False, gated=True)
    table = _table("embedding", vocabulary, width, length)
    words = _logits("words", length, width, vocabulary, tied=False)
    words = replace(words, parameters=words.parameters + width)
    return _language("llama", (table, *_stack(layer, layers), words), length, vocabulary)
