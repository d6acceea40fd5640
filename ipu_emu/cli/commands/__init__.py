"""Commands: one module per command of ``ipu-emu``."""
