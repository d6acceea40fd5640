"""Make every host collective; print the results, arrays as [dtype, shape, values]."""

import json

import numpy as np

import popdist_py
from popdist_py import allGather, allReduce, broadcast

popdist_py.init()
me = popdist_py.getInstanceIndex()


def shown(value):
    if isinstance(value, (np.ndarray, np.generic)):
        return [value.dtype.str, list(value.shape), np.asarray(value).ravel().tolist()]
    return value


def error_of(work):
    try:
        return shown(work())
    except popdist_py.PopdistError as error:
        return f"{type(error).__name__}: {error}"


values = np.random.default_rng(me).standard_normal(7).astype(np.float32)
last = popdist_py.getNumInstances() - 1
tensor = np.array([[1, 2, 3], [4, 5, 6]], np.int32) * (me + 1)
said = {
    "float32": {op: shown(allReduce(values, op)) for op in ("sum", "mean", "mul", "min", "max")},
    "float16": shown(allReduce(np.array([2048, 1], np.float16) if me == 0 else np.ones(2, np.float16))),
    "int mean": shown(allReduce(tensor, "mean")),
    "int sum": shown(allReduce(tensor)),
    "number": shown(allReduce(me + 0.5)),
    "text": error_of(lambda: allReduce("text")),
    "gathered": shown(allGather(tensor)),
    "transposed": shown(allGather(tensor.T)),
    "gathered number": shown(allGather(me)),
    "empty": shown(allGather(np.zeros((0, 3), np.float32))),
    "empty sum": shown(allReduce(np.zeros((2, 0), np.float16), "max")),
    "array of 0": shown(broadcast(tensor)),
    "array of last": shown(broadcast(tensor if me == last else None, root=last)),
    "scalar": shown(broadcast(np.float16(me))),
    "plain": broadcast({"epoch": me, 3: [None, True, 2.5, "ü"], "bytes?": []}),
    "nothing": broadcast(None),
    "large": int(broadcast(np.arange(1 << 20) if me == 0 else 0).sum()),
    "shape": error_of(lambda: allReduce(np.zeros(4 if me else 3))),
    "dtype": error_of(lambda: allGather(np.zeros(3, "f4" if me else "f8"))),
    "operator": error_of(lambda: allReduce(1.0, "max" if me else "min")),
    "call": error_of(lambda: allReduce(1.0) if me else allGather(1.0)),
    "barrier": error_of(lambda: popdist_py.synchronize() if me else allGather(1.0)),
    "object": error_of(lambda: allGather(np.array([None, {}]))),
    "unknown operator": error_of(lambda: allReduce(1.0, "median")),
    "unknown root": error_of(lambda: broadcast(1, root=last + 1)),
    "after all that": allGather(me).tolist(),
}
print(json.dumps(said))
