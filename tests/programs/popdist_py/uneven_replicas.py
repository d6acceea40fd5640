"""Instances with different numbers of replicas join."""

import popdist_py

popdist_py.init()
print(popdist_py.allGather(popdist_py.getNumLocalReplicas()).tolist(), popdist_py.getReplicaIndexOffset())
