"""Layer parameters: parameter counts of common layers ("Mapping a model to an IPU system", 3.4.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameters:
    """Parameter counts of a layer; moving averages are ``non_trainable`` and have no optimiser state."""

    weights: int
    biases: int = 0
    non_trainable: int = 0

    @property
    def trainable(self) -> int:
        return self.weights + self.biases

    @property
    def total(self) -> int:
        return self.trainable + self.non_trainable

    @property
    def in_inference(self) -> Parameters:
        """Without scale and location of channels with moving averages, into which an inference program folds them."""
        folded = self.non_trainable // 2
        return Parameters(self.weights - folded, self.biases - folded, self.non_trainable)

    def __add__(self, other: Parameters) -> Parameters:
        return Parameters(
            self.weights + other.weights, self.biases + other.biases, self.non_trainable + other.non_trainable
        )

    def __mul__(self, times: int) -> Parameters:
        return Parameters(self.weights * times, self.biases * times, self.non_trainable * times)


def convolution(kernel: tuple[int, int], channels: int, filters: int, *, bias: bool = True) -> Parameters:
    """(w h C + 1) N; a convolution before a normalisation has no bias."""
    return Parameters(kernel[0] * kernel[1] * channels * filters, filters * bias)


def dense(inputs: int, outputs: int, *, bias: bool = True) -> Parameters:
    """n p weights and p biases."""
    return Parameters(inputs * outputs, outputs * bias)


def batch_norm(size: int) -> Parameters:
    """Scale and location of each of n channels (2 n, in training only), and their moving averages (2 n, always)."""
    return Parameters(size, size, 2 * size)


def layer_norm(size: int) -> Parameters:
    """Scale and location of each of n values."""
    return Parameters(size, size)


def embedding(vocabulary: int, hidden: int) -> Parameters:
    """h values for each of N words."""
    return Parameters(vocabulary * hidden)


def encoder_layer(hidden: int) -> Parameters:
    """A transformer encoder layer: attention of four dense layers, a feed-forward part of 4 h, two layer norms."""
    attention = dense(hidden, hidden) * 4
    return attention + dense(hidden, 4 * hidden) + dense(4 * hidden, hidden) + layer_norm(hidden) * 2
