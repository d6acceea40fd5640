"""codegen: numerical kernels generated as LLVM code at run time, compiled once per machine.

The kernels of ops use it, so it imports nothing from the other folders of ops. Only this folder of ipu_emu imports
llvmlite.
"""
