"""The modules and names of PopTorch, printing of blocks, hooks, and calls that do not match.

Then forms of calls that programs use: arguments by name, stages by block, and devices that compile() attaches to.
"""

import contextlib

import poptorch
import poptorch.enums
import poptorch.ops
import poptorch.options
import poptorch.poptorch_core
import torch

poptorch.setLogLevel("ERR")
poptorch.setLogLevel(1)
try:
    poptorch.setLogLevel("no")
except ValueError as e:
    print(e)
assert poptorch.__version__.startswith("3.4.0")
assert poptorch.ipuHardwareIsAvailable()
assert poptorch.ipuHardwareVersion() == 2
m = torch.nn.Sequential(torch.nn.Linear(2, 2))
poptorch.BeginBlock(m[0], "one", 1)
assert "BeginBlock(user_id='one', ipu_id=1) Linear" in poptorch.module_repr(m)
poptorch.print(m)
ch = poptorch.profiling.Channel("c")
with ch.tracepoint("t"):
    pass
ch.instrument(m, "forward")
opts = poptorch.Options()
opts.from_json('{"deviceIterations":2,"Training.gradientAccumulation":1}')
c = opts.clone()
c.deviceIterations(3)
assert opts.device_iterations == 2
try:
    opts.noSuch = 3
except AttributeError as e:
    print(e)
seen = []
h = poptorch.registerPreCompileHook(lambda: seen.append("pre"))
h2 = poptorch.registerPostCompileHook(lambda: seen.append("post"))
i = poptorch.inferenceModel(torch.nn.Linear(2, 2), opts)
i(torch.ones(4, 2))
h.remove()
h2.remove()
assert seen == ["pre", "post"]
i.rng_state = [1, 2]
assert i.rng_state == [1, 2]
poptorch.poptorch_core._validateOptions({"outlineThreshold": 1.0})
for bad in ((torch.ones(3, 2),), (torch.ones(4, 2), torch.ones(4, 2)), ()):
    try:
        i(*bad)
        raise SystemExit("accepted")
    except (poptorch.Error, AssertionError) as e:
        print(e)
poptorch.setLogLevel("WARN")

model = torch.nn.Sequential(torch.nn.Linear(2, 2))
model[0] = poptorch.BeginBlock(layer_to_call=model[0], ipu_id=0)

strategy = poptorch.PipelinedExecution("A", "B")
assert strategy.stage("B").ipu(0) is strategy.stage(1)
with contextlib.suppress(AssertionError):
    strategy.stage("C")
    raise ValueError("there is no stage with the block C")

attached = poptorch.inferenceModel(torch.nn.Linear(2, 2))
attached.compile(torch.ones(1, 2))
assert attached.isAttachedToDevice()
attached.detachFromDevice()
options = poptorch.Options().connectionType(poptorch.ConnectionType.OnDemand)
on_demand = poptorch.inferenceModel(torch.nn.Linear(2, 2), options)
on_demand.compile(torch.ones(1, 2))
assert not on_demand.isAttachedToDevice()


class Slice(torch.nn.Module):
    def forward(self, x, start):
        return poptorch.dynamic_slice(x, 0, start, 2, 1)


# The values of the arguments of compile() do not matter.
sliced = poptorch.inferenceModel(Slice())
sliced.compile(torch.arange(8.0), torch.tensor([21]))
assert sliced(torch.arange(8.0), torch.tensor([1])).tolist() == [1, 2]


class Trained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        return y, poptorch.identity_loss(y, "sum")


trained = Trained()
training = poptorch.trainingModel(trained, optimizer=torch.optim.SGD(trained.parameters(), lr=0.1))
training(torch.ones(1, 4))
assert training.options.output_mode is poptorch.OutputMode.Final
