"""Ops: the modules of ``tensorflow.python.ipu.ops``."""
