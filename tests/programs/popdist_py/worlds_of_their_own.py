"""Call init in processes that MPI does not connect."""

import os

import popdist_py

for uniform in "10":
    os.environ["POPDIST_UNIFORM_REPLICAS_PER_INSTANCE"] = uniform
    try:
        popdist_py.init()
    except popdist_py.BackendError as error:
        print(error)
print(popdist_py.isBackendInitialized())
