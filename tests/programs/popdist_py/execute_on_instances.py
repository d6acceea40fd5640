"""Make collectives inside execute_on_instances, which include only the selected instances."""

import json

import popdist_py
from popdist_py import BackendError, execute_on_instances

popdist_py.init()
me = popdist_py.getInstanceIndex()


def gather(start, *, step):
    popdist_py.synchronize()
    return popdist_py.allGather(start + step * me).tolist()


def nested():
    return [gather(0, step=1), execute_on_instances({3}, gather, 5, step=1), gather(0, step=2)]


def beyond():
    try:
        return execute_on_instances({0, 3}, gather, 0, step=1)
    except BackendError as error:
        return str(error)


def different():
    try:
        return popdist_py.allReduce(1.0, "max" if me == 3 else "min")
    except BackendError as error:
        return str(error)


said = [
    execute_on_instances({0, 2}, gather, 100, step=1),
    execute_on_instances({1, 3}, nested),
    execute_on_instances({1, 3}, beyond),
    execute_on_instances({1, 3}, different),
    execute_on_instances({2}, gather, 7, step=0),
    gather(0, step=1),
]
print(json.dumps(said))
