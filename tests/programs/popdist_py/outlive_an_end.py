"""Continue alone after another instance has ended early."""

import popdist_py

popdist_py.init()
if popdist_py.getInstanceIndex() == 0:
    for _ in range(3):
        try:
            popdist_py.synchronize()
        except popdist_py.BackendError as error:
            print(error)
