"""Commands: one module per command of ``ipu-emu``, their common options, and the model that they compile."""
