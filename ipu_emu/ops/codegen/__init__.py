"""codegen: numerical kernels generated as LLVM code at run time, compiled once per machine.

The kernels of ops are made of it, so it imports nothing of the other folders of ops. Nothing else of ipu_emu imports
llvmlite.
"""
