"""Who outlives an early end may go on alone."""

import popdist_py

popdist_py.init()
if popdist_py.getInstanceIndex() == 0:
    for _ in range(3):
        try:
            popdist_py.synchronize()
        except popdist_py.BackendError as error:
            print(error)
