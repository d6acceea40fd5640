"""Check every kind of anchor among the instances of the job."""

import popdist_py as popdist
from ipu_emu.engine import Replicas
from tests.ipu_emu.helpers.reference_anchors import check_all
from tests.ipu_emu.helpers.threaded_instances import Instance


class Process(Instance):
    def __init__(self):
        self.local, self.offset = popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()
        self.total = popdist.getNumTotalReplicas()

    def replicas(self):
        return Replicas(local=self.local, offset=self.offset, total=self.total)


popdist.init()
print("compared", check_all(Process()))
