"""Transformers: BERT, GPT-2, T5, Llama and a small causal model as blocks.

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

NORM, SOFTMAX, _GELU, SUMS = 8, 6, 10, 4
#: Parts in which logits of a vocabulary are made, so that not all of them are live at once.
_SLICES = 4


@dataclass(frozen=True)
class TransformerLayer:
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
            vector=(NORM + SUMS) * length * h + SOFTMAX * scores,
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
            vector=(NORM + SUMS) * length * h + _GELU * length * inner,
            steps=1,
            training_steps=1 + 2 * self.bias,
            stashed=length * (h + (3 if self.gated else 2) * inner),
            output=length * h,
            transient=2 * length * inner,
        )

    def both(self, name: str) -> tuple[NetworkBlock, NetworkBlock]:
        return self.attention(f"{name}/attention"), self.feed_forward(f"{name}/feed-forward")

    def stack(self, layers: int, name: str = "layer") -> tuple[NetworkBlock, ...]:
        return tuple(block for index in range(layers) for block in self.both(f"{name}{index}"))


def _table(name: str, rows: int, h: int, length: int, *, others: int = 0, norm: bool = False) -> NetworkBlock:
    """A token embedding, with the parameters of ``others`` rows of positions and kinds."""
    parameters = embedding(rows + others, h).total + (layer_norm(h).total if norm else 0)
    sums = (NORM * norm + SUMS) * length * h
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
        vector=SOFTMAX * positions * vocabulary,
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
    blocks = (table, *TransformerLayer(length, width, heads).stack(layers), pooler, pair, words)
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
        vector=2 * SOFTMAX * length,
        training_steps=1 + 2 * LOSS_STEPS,
        stashed=4.0 * length,
        transient=2.0 * length,
    )
    blocks = (table, *TransformerLayer(length, width, heads).stack(layers), span)
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
    stack = TransformerLayer(length, width, heads).stack(layers)
    words = replace(_logits("words", length, width, vocabulary, tied=True), parameters=layer_norm(width).total)
    return _language("gpt2", (table, *stack, words), length, vocabulary)


def causal(*, layers: int = 2, width: int = 256, heads: int = 4, length: int = 128, vocabulary: int = 96) -> Network:
    """A small causal model whose output layer has weights of its own."""
    table = _table("embedding", vocabulary, width, length, others=length)
    stack = TransformerLayer(length, width, heads).stack(layers)
    words = _logits("words", length, width, vocabulary, tied=False)
    parameters = layer_norm(width).total + dense(width, vocabulary).total
    words = replace(words, parameters=parameters, training_steps=words.training_steps + 1)
    return _language("transformer", (table, *stack, words), length, vocabulary)


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
    encoder = TransformerLayer(length, width, heads, inner=inner, space=kv, bias=False, norm_bias=False)
    decoder = TransformerLayer(target, width, heads, inner=inner, space=kv, bias=False, norm_bias=False)
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
    layer = TransformerLayer(length, width, heads, inner=inner, kv=kv, bias=False, norm_bias=False, gated=True)
    table = _table("embedding", vocabulary, width, length)
    words = _logits("words", length, width, vocabulary, tied=False)
    words = replace(words, parameters=words.parameters + width)
    return _language("llama", (table, *layer.stack(layers), words), length, vocabulary)
