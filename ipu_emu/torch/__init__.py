"""ipu_emu.torch: train a PyTorch module on emulated IPUs with one call, alone or under poprun-py."""

import importlib.util as _modules

if _modules.find_spec("torch") is None:
    raise ImportError("ipu_emu.torch needs PyTorch, which is not installed; pip install 'poprun-py[torch]'")

from ipu_emu.torch.train import train

__all__ = ["train"]
