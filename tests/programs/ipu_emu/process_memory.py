"""Train a model; print the bytes of its memory plan, and the peak of the process's memory."""

import re
import sys
from pathlib import Path

import numpy as np

from ipu_emu import models, popart

model = {"resnet8": models.resnet8, "transformer": models.transformer}[sys.argv[1]](batch=8)
session = popart.TrainingSession(
    model.proto,
    popart.DataFlow(1, [model.loss]),
    model.loss,
    popart.Adam({"defaultLearningRate": (0.001, False)}),
    popart.DeviceManager().createCpuDevice(),
)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
infos = {id: session.getInfo(id) for id in (model.data, model.labels)}
data = {id: np.zeros(info.shape(), info.data_type_lcase()) for id, info in infos.items()}
for _ in range(3):
    session.run(popart.PyStepIO(data, anchors))
# Not ru_maxrss, which is the parent's where that is larger.
most = int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
print(sum(session.getReport().memory.values()), most)
