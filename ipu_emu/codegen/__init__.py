"""codegen: numerical kernels generated as LLVM code at run time, compiled once per machine.

It is a low room, beside ``ipu_emu.graph`` and ``ipu_emu.hardware``: the kernels of ops are made of it, so it may not
import ops, nor anything above them. No other room of ipu_emu imports llvmlite.
"""
