"""The digits network in numpy: one process, one loop, every formula written out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

__all__ = ["ByHand"]


def windows(x: np.ndarray) -> np.ndarray:
    """[N, H, W, C * 9]: the 3 x 3 neighbourhood of every pixel of x [N, C, H, W], zeros outside."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = sliding_window_view(padded, (3, 3), axis=(2, 3))
    return view.transpose(0, 2, 3, 1, 4, 5).reshape(x.shape[0], x.shape[2], x.shape[3], -1)


def convolve(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (windows(x) @ w.reshape(len(w), -1).T + b).transpose(0, 3, 1, 2)


def convolve_back(g: np.ndarray, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = g.transpose(0, 2, 3, 1).reshape(-1, len(w))
    dw = (rows.T @ windows(x).reshape(len(rows), -1)).reshape(w.shape)
    flipped = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    return convolve(g, flipped, np.zeros(len(flipped), g.dtype)), dw, rows.T.copy().sum(axis=1)


def pool(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).mean(axis=(3, 5))


def pool_back(g: np.ndarray) -> np.ndarray:
    return (g / 4).repeat(2, axis=2).repeat(2, axis=3)


class ByHand:
    """Weights and velocities; ``batch`` makes one update."""

    def __init__(self, weights: Mapping[str, np.ndarray], dtype: Any = np.float32) -> None:
        self.w = {name: value.astype(dtype) for name, value in weights.items()}
        self.v = {name: np.zeros_like(value) for name, value in self.w.items()}

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """Every layer's result, the probabilities last."""
        w = self.w
        a1 = np.tanh(convolve(x, w["conv1_weights"], w["conv1_bias"]))
        p1 = pool(a1)
        a2 = np.tanh(convolve(p1, w["conv2_weights"], w["conv2_bias"]))
        p2 = pool(a2)
        logits = p2.reshape(len(x), -1) @ w["dense_weights"] + w["dense_bias"]
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        return a1, p1, a2, p2, e / e.sum(axis=1, keepdims=True)

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        return self.forward(x)[-1]

    def gradients(self, x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Mean loss of a micro-batch, and its gradients."""
        a1, p1, a2, p2, p = self.forward(x)
        w, rows, flat = self.w, np.arange(len(x)), p2.reshape(len(x), -1)
        loss = -np.log(p[rows, labels]).mean()
        g = p.copy()
        g[rows, labels] -= 1
        g /= len(x)
        d = {"dense_weights": flat.T @ g, "dense_bias": g.sum(axis=0)}
        g = pool_back((g @ w["dense_weights"].T).reshape(p2.shape)) * (1 - a2 * a2)
        g, d["conv2_weights"], d["conv2_bias"] = convolve_back(g, p1, w["conv2_weights"])
        g = pool_back(g) * (1 - a1 * a1)
        _, d["conv1_weights"], d["conv1_bias"] = convolve_back(g, x, w["conv1_weights"])
        return loss, d

    def batch(self, images: np.ndarray, labels: np.ndarray, rate: float) -> np.ndarray:
        """One update from micro-batches [A, R, n, ...]: mean gradient, momentum 0.9; losses [A, R]."""
        total = {name: np.zeros_like(value) for name, value in self.w.items()}
        losses = np.zeros(labels.shape[:2], np.float64)
        for a in range(labels.shape[0]):
            for r in range(labels.shape[1]):
                losses[a, r], d = self.gradients(images[a, r].astype(self.w["conv1_bias"].dtype), labels[a, r])
                for name in total:
                    total[name] += d[name]
        count = labels.shape[0] * labels.shape[1]
        for name, value in self.w.items():
            self.v[name] = value.dtype.type(0.9) * self.v[name] + total[name] / value.dtype.type(count)
            self.w[name] = value - value.dtype.type(rate) * self.v[name]
        return losses
