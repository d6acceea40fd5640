"""Replicate a graph in one process, or over several, with the option blocks of PopART's user guide (6.2).

    python examples/replication.py                                                       2 local replicas
    poprun-py --num-instances 4 --num-replicas 8 python examples/replication.py          4 instances of 2

Each replica gets its own number x, and the loss is x w. So one update with learning rate 1 subtracts the sum of all x
from w, however the replicas are spread. Each instance only gives and gets the data of its local replicas.
"""

from __future__ import annotations

import argparse

import numpy as np

import ipu_emu.popart as popart
import popdist_py as popdist


def session_options() -> popart.SessionOptions:
    """The options of this instance: local replication alone, or local and global replication."""
    opts = popart.SessionOptions()
    if not popdist.isPopdistEnvSet():
        opts.enableReplicatedGraphs = True
        opts.replicatedGraphCount = 2
        return opts
    # Local replication settings.
    opts.enableReplicatedGraphs = popdist.getNumLocalReplicas() > 1
    opts.replicatedGraphCount = popdist.getNumLocalReplicas()
    # Global replication settings.
    opts.enableDistributedReplicatedGraphs = True
    opts.globalReplicationFactor = popdist.getNumTotalReplicas()
    opts.globalReplicaOffset = popdist.getReplicaIndexOffset()  # different for each instance
    return opts


def main() -> None:
    argparse.ArgumentParser(description="Replicate a graph in one process, or over several.").parse_args()
    popdist.init()
    opts = session_options()
    local, first = opts.replicatedGraphCount, opts.globalReplicaOffset
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1]))
    w = builder.addInitializedInputTensor(np.zeros(1, np.float32), "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    flow = popart.DataFlow(1, {x: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().acquireAvailableDevice(local)
    session = popart.TrainingSession(
        builder.getModelProto(), flow, loss, popart.ConstSGD(1.0), device, userOptions=opts
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = np.arange(first + 1, first + local + 1, dtype=np.float32)
    session.run(popart.PyStepIO({x: data}, anchors))
    weight = np.zeros(1, np.float32)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({w: weight}))
    total = opts.getGlobalReplicationFactor()
    print(f"replicas {first} to {first + local - 1} of {total} saw {anchors[x].ravel().tolist()}; w is {weight[0]:g}")


if __name__ == "__main__":
    main()
