"""Leave with instance 1 as the first argument says, while the others wait, or sum, as the second says."""

import sys

import popdist_py

how, others = sys.argv[1:]
popdist_py.init()
if popdist_py.getInstanceIndex() == 1:
    if how == "raises":
        raise ValueError("the data is bad")
    if how == "raises SystemExit":
        raise SystemExit(3)
    if how != "ends":
        sys.exit(int(how) if how.isdecimal() else how)
elif others == "wait":
    popdist_py.synchronize()  # for longer than a test may take
else:
    popdist_py.allReduce(1.0)
