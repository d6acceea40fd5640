"""Train a pipeline until instance 1 dies in the middle of it."""

import os

os.environ["POPDIST_NUM_IPUS_PER_REPLICA"] = "2"
import popdist_py as popdist
import popdist_py.popart
from ipu_emu import popart
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, Tower

popdist.init()
tower, opts = Tower(2, plain=True), popart.SessionOptions()
for name, value in PIPELINE.items():
    setattr(opts, name, value)
opts.enableGradientAccumulation, opts.accumulationFactor = True, 8
popdist_py.popart.configureSessionOptions(opts)
flow = popart.DataFlow(1, [tower.loss])
device = popdist_py.popart.getDevice(2)
session = popart.TrainingSession(
    tower.builder.getModelProto(), flow, tower.loss, popart.ConstSGD(0.1), device, userOptions=opts
)
session.prepareDevice()
session.weightsFromHost()


class Mortal(popart.PyStepIO):
    calls = 0

    def read(self, id):
        self.calls += 1
        if self.calls == 40 and popdist.getInstanceIndex() == 1:
            os._exit(3)
        return super().read(id)


stepio = Mortal(tower.data(0, 1, 8, 1), session.initAnchorArrays())
for _step in range(10):
    session.run(stepio)
print("finished")
