"""Recurrent networks: RNN-T for speech: an encoder, a predictor of word pieces, and their joint network."""

from __future__ import annotations

from ipu_emu.predict.layer_parameters import dense, embedding
from ipu_emu.predict.networks.block import LOSS_STEPS, BlockKind, Network, NetworkBlock, weighted

_GATES = 24  # operations on the elements of a cell


def _lstm(name: str, steps: int, inputs: int, width: int, *, data: bool = False) -> NetworkBlock:
    """An LSTM layer; its gates have two biases, as in cuDNN. Each time step has its own product with the state."""
    weights = 4 * width * (inputs + width)
    return NetworkBlock(
        name,
        BlockKind.LAYER,
        weights + 8 * width,
        products=(weighted(steps, inputs, 4 * width, data=data), weighted(1, width, 4 * width, count=steps)),
        training_steps=2,
        vector=_GATES * steps * width,
        stashed=6 * steps * width,
        output=steps * width,
        transient=4 * steps * width,
    )


def rnnt(
    *,
    length: int = 500,
    target: int = 125,
    features: int = 240,
    encoder: int = 1024,
    predictor: int = 512,
    joint: int = 512,
    vocabulary: int = 1024,
) -> Network:
    """RNN-T of MLPerf Training: ``length`` frames of ``features`` values, ``target`` word pieces."""
    half = length // 2
    blocks = [_lstm("encoder0", length, features, encoder, data=True), _lstm("encoder1", length, encoder, encoder)]
    blocks.append(_lstm("encoder2", half, 2 * encoder, encoder))
    blocks += [_lstm(f"encoder{index}", half, encoder, encoder) for index in (3, 4)]
    table = embedding(vocabulary - 1, predictor).total
    blocks.append(
        NetworkBlock("embedding", BlockKind.EMBEDDING, table, looked_up=target * predictor, output=target * predictor)
    )
    blocks += [_lstm(f"predictor{index}", target, predictor, predictor) for index in (0, 1)]
    inputs = dense(encoder, joint) + dense(predictor, joint)
    last = dense(joint, vocabulary)
    pairs = half * (target + 1)
    products = (
        weighted(half, encoder, joint),
        weighted(target, predictor, joint),
        weighted(pairs, joint, vocabulary),
    )
    blocks.append(
        NetworkBlock(
            "joint",
            BlockKind.HEAD,
            inputs.total + last.total,
            products=products,
            training_steps=3 + LOSS_STEPS,
            vector=pairs * (2 * joint + 6 * vocabulary),
            stashed=pairs * joint,
            transient=pairs * vocabulary,
        )
    )
    return Network("rnnt", "recurrent", "utterances", tuple(blocks), length * features, "float16", 4 * target)
