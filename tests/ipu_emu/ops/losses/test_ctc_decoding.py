"""CTC decoding: label sequences by beam search, compared with an enumeration of all paths."""

from __future__ import annotations

from itertools import groupby, product
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer


def sequences(p: np.ndarray, blank: int) -> list[tuple[float, tuple[int, ...]]]:
    """(probability, labels) of all sequences to which paths through ``p`` [T, C] reduce, the most likely first."""
    likely: dict[tuple[int, ...], float] = {}
    for path in product(range(p.shape[1]), repeat=p.shape[0]):
        labels = tuple(label for label, _ in groupby(path) if label != blank)
        likely[labels] = likely.get(labels, 0) + float(np.prod([p[t, c] for t, c in enumerate(path)]))
    return sorted(((value, labels) for labels, value in likely.items()), reverse=True)


def decode(logs: np.ndarray, lengths: list[int], *settings: int) -> list[Any]:
    builder = popart.Builder()
    data = builder.addInputTensor(popart.TensorInfo(logs))
    sizes = builder.addInputTensor(popart.TensorInfo("UINT32", [len(lengths)]))
    ids = builder.aiGraphcore.ctcbeamsearchdecoder([data, sizes], *settings)
    outputs = infer(builder, popart.DataFlow(1, ids), {data: logs, sizes: np.array(lengths, np.uint32)})
    return [outputs[id] for id in ids]


def logs_of(times: int, batch: int, classes: int, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).gumbel(size=(times, batch, classes)) * 1.5
    return (x - np.log(np.exp(x).sum(2, keepdims=True))).astype(np.float32)


@pytest.mark.parametrize("blank", [0, 2], ids=["first-class-is-blank", "last-class-is-blank"])
@pytest.mark.parametrize("seed", range(3), ids=lambda seed: f"seed-{seed}")
def test_the_most_likely_sequences_are_found_where_nothing_is_dropped(blank: int, seed: int) -> None:
    logs, lengths, paths = logs_of(5, 4, 3, seed), [5, 3, 1, 0], 4
    values, sizes, labels = decode(logs, lengths, blank, 400, paths)
    assert (values.dtype, sizes.dtype, labels.dtype) == (np.float32, np.uint32, np.uint32)
    for n, length in enumerate(lengths):
        wanted = sequences(np.exp(logs[:length, n].astype(np.float64)), blank)[:paths]
        for k in range(paths):
            value, sequence = wanted[k] if k < len(wanted) else (0.0, ())
            np.testing.assert_allclose(np.exp(values[n, k]), value, rtol=1e-5)
            assert tuple(labels[n, k, : sizes[n, k]]) == sequence
            assert not labels[n, k, sizes[n, k] :].any()


def test_a_beam_of_one_follows_the_best_prefix() -> None:
    """If each step has one certain class, the result is the reduced path of the best classes."""
    best = [1, 1, 0, 1, 2, 2, 0, 0, 2, 3]
    logs = np.full((len(best), 1, 4), np.log(0.01), np.float32)
    logs[np.arange(len(best)), 0, best] = np.log(0.97)
    _, sizes, labels = decode(logs, [len(best)], 0, 1)
    assert labels[0, 0, : sizes[0, 0]].tolist() == [1, 1, 2, 2, 3]


def test_a_prefix_that_was_dropped_may_come_back() -> None:
    """A narrow beam finds no more sequences than exist, and none twice."""
    batch = 20
    logs = logs_of(6, batch, 3)
    values, sizes, labels = decode(logs, [6] * batch, 0, 4, 4)
    for n in range(batch):
        decoded = [tuple(labels[n, k, : sizes[n, k]]) for k in range(4)]
        assert len(set(decoded)) == 4
        exact = {sequence: value for value, sequence in sequences(np.exp(logs[:, n].astype(np.float64)), 0)}
        assert all(np.exp(values[n, k]) <= exact[decoded[k]] * 1.00001 for k in range(4))
        assert (np.diff(values[n]) <= 0).all()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ((3, 4, 1), "blank 3 is not one of 3 classes"),
        ((0, 4, 5), "top_paths 5 must be from 1 to beam_width"),
    ],
)
def test_settings_that_no_search_has_are_refused(settings: tuple[int, ...], text: str) -> None:
    with pytest.raises(popart.popart_exception, match=text):
        decode(logs_of(2, 1, 3), [2], *settings)
