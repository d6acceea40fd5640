"""Raise in the function of execute_on_instances, after which all instances can still communicate."""

import popdist_py

popdist_py.init()
try:
    popdist_py.execute_on_instances({1}, lambda: 1 // 0)
except ZeroDivisionError:
    print("raised here", end=" ")
print(popdist_py.allGather(popdist_py.getInstanceIndex()).tolist())
