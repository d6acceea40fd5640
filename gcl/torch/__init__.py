"""gcl.torch: gcl as a back end of ``torch.distributed``; importing it registers the back end "gcl"."""

import importlib.util
import sys


def _check_platform() -> None:
    """Raise ImportError if PyTorch is missing, or the system is not Linux."""
    if sys.platform != "linux":
        raise ImportError(
            f"gcl.torch needs Linux, whose processes can share memory without a name, but this is {sys.platform}; "
            'use init_process_group("gloo") here, or a Linux container'
        )
    if importlib.util.find_spec("torch") is None:
        raise ImportError("gcl.torch needs PyTorch, which is not installed; pip install 'poprun-py[torch]'")


_check_platform()

from gcl.torch.ddp_hooks import bf16_hook, ddp_hook, fp16_hook
from gcl.torch.functions import empty, monitored_barrier, split_group
from gcl.torch.mpi_jobs import init_process_group
from gcl.torch.registration import Options, register

__all__ = [
    "Options", "bf16_hook", "ddp_hook", "empty", "fp16_hook", "init_process_group", "monitored_barrier", "register",
    "split_group",
]  # fmt: skip

register()
