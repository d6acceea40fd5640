"""Networks in PyTorch: those of ipu_emu.models from their weights, and published architectures, written out."""
