"""Without PyTorch, the error of both of its front ends names the package to install."""

import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize("face", ["ipu_emu.poptorch", "ipu_emu.torch"])
def test_a_missing_pytorch_is_reported_with_the_remedy(face, monkeypatch):
    for name in [name for name in sys.modules if name == face or name.startswith(f"{face}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=rf"{face} needs PyTorch.*pip install 'poprun-py\[torch\]'"):
        import_module(face)
