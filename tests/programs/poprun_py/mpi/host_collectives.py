"""Exchange host values with popdist_py: ``host_collectives.py sum|gather|meet``."""

import sys

import popdist_py

popdist_py.init()
index = popdist_py.getInstanceIndex()
if sys.argv[1] == "sum":
    print("sum", int(popdist_py.allReduce(index)))
elif sys.argv[1] == "gather":
    print(popdist_py.allGather(10 * index))
else:
    popdist_py.synchronize()
