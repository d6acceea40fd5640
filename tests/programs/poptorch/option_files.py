"""Options from files and JSON, copies, and invalid options."""

import tempfile

import poptorch

with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
    file.write(
        "# options\ndeviceIterations(4)\n\nreplicationFactor(2)\nTraining.gradientAccumulation(8)\n"
        "setExecutionStrategy(poptorch.ShardedExecution())\nsetAvailableMemoryProportion({'IPU0': 0.1})\n"
    )
    file.flush()
    opts = poptorch.Options().loadFromFile(file.name)
assert (opts.device_iterations, opts.replication_factor, opts.Training.gradient_accumulation) == (4, 2, 8)
opts = poptorch.Options().from_json('{"deviceIterations": 3, "connectionType": "ConnectionType.OnDemand"}')
assert opts.connection_type is poptorch.ConnectionType.OnDemand
assert repr(opts).startswith("Options(")
copy = opts.clone().deviceIterations(5)
assert (opts.device_iterations, copy.device_iterations) == (3, 5)
copy.outputMode(poptorch.OutputMode.All)
assert copy.toDict()["device_iterations"] == 5
for wrong in (lambda: copy.deviceIterations("4"), lambda: copy.nothing, lambda: copy.TensorLocations.numIOTiles(33)):
    try:
        wrong()
    except (AssertionError, AttributeError) as error:
        print(error)
    else:
        raise SystemExit("accepted")
poptorch.setLogLevel("ERR")
poptorch.setLogLevel(3)
assert poptorch.ipuHardwareIsAvailable()
assert poptorch.ipuHardwareVersion() == 2
