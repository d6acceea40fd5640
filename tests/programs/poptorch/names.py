"""The modules and names of PopTorch, printing of blocks, hooks, and calls that do not match."""

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
