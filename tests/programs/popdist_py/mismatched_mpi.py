"""Print the error of init if launcher and library are of different MPIs."""

import popdist_py

try:
    popdist_py.init()
except popdist_py.BackendError as error:
    print(error)
print(popdist_py.isBackendInitialized())
