"""Call init after finalizeBackend, which raises."""

import popdist_py

popdist_py.init()
popdist_py.finalizeBackend()
try:
    popdist_py.init()
except popdist_py.BackendError as error:
    print(error)
