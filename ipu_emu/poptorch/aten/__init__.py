"""aten: the ops of the emulator for each ATen op, one module per family, in one table."""
