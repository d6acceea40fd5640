"""Join the job, synchronize, and leave."""

import json
import os

import popdist_py

assert not popdist_py.isBackendInitialized()
popdist_py.init()
popdist_py.init()
popdist_py.synchronize()
print(json.dumps([popdist_py.getInstanceIndex(), popdist_py.allGather(os.getpid()).tolist()]))
