"""Weights digest: 16 hexadecimal digits that are equal for two models whose weights have the same bits.

It is the start of the SHA-256 of, for each weight in the order of the names: its name, element type and shape as a
line of text, then its elements in C order, little endian. The order of a dict does not matter. All NaNs count as one,
because processors differ in their payloads; 0.0 and -0.0 differ. bfloat16 elements are taken as the float32 numbers
that they are equal to. Optimiser states are not weights; running statistics are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from popdist_py import trace
from popdist_py.environment import VERBOSITY, Environment

#: Hexadecimal digits: two different models have equal digests once in 2**64.
_DIGITS = 16


def digest(weights: Any) -> str:
    """Return the digest of the weights of a model.

    ``weights``: arrays or tensors by name, a PyTorch or PopTorch module, a PopART session, or a Keras model. Those of
    a Keras model are numbered in the order of ``model.weights``, as Keras counts the layers of a process in their
    names. Those of a session are the host's, which ``weightsToHost`` updates. Values without an element type, such as
    a module's extra state, are left out.

        digest({"w": np.zeros(2, np.float32)}) == digest({"w": torch.zeros(2)})

    Raise TypeError for anything else.
    """
    hashed = sha256()
    for name, value in sorted(_by_name(weights).items()):
        if hasattr(value, "dtype"):
            dtype, array = _plain(value)
            hashed.update(f"{name} {dtype} {list(array.shape)}\n".encode())
            hashed.update(array.tobytes())
    return hashed.hexdigest()[:_DIGITS]


def report_digest(weights: Any) -> None:
    """Print the digest if the launcher is verbose, and record it in a trace; the first instance does it for all."""
    if not is_reported():
        return
    text, recorder = digest(weights), trace.recorder()
    if recorder:
        recorder.define({trace.WEIGHTS: text})
    if _is_verbose():
        print(f"weights {text}", file=sys.stderr, flush=True)


def is_reported() -> bool:
    """Whether this process reports the digest."""
    wanted = _is_verbose() or trace.recorder() is not None
    return wanted and not Environment.from_environ(os.environ).replica_index_offset


def _is_verbose() -> bool:
    return os.environ.get(VERBOSITY, "0") != "0"


def _by_name(weights: Any) -> Mapping[str, Any]:
    if isinstance(weights, Mapping):
        return weights
    for method in ("state_dict", "weightsByName"):
        if callable(getattr(weights, method, None)):
            named: Mapping[str, Any] = getattr(weights, method)()
            return named
    if isinstance(getattr(weights, "weights", None), list):
        return {f"{number:06}": weight.numpy() for number, weight in enumerate(weights.weights)}
    raise TypeError(
        f"a {type(weights).__name__} has no weights; give arrays by name, a module, a PopART session or a Keras model"
    )


def _plain(value: Any) -> tuple[str, NDArray[Any]]:
    """Return the name of the element type, and the elements as an array of little-endian numbers with one NaN."""
    dtype = str(value.dtype).removeprefix("torch.")
    if hasattr(value, "detach"):
        value = value.detach().float() if dtype == "bfloat16" else value.detach()
        value = value.cpu().numpy()
    array = np.asarray(value, np.float32 if dtype == "bfloat16" else None)
    if array.dtype.kind in "fc":
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
    return array.dtype.name if dtype != "bfloat16" else dtype, array.astype(array.dtype.newbyteorder("<"), copy=False)
