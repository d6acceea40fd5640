"""gcl.torch: gcl as a back end of ``torch.distributed``; importing it registers the back end "gcl"."""

from gcl.torch.platform_check import check_platform

check_platform()

from gcl.torch.ddp_hooks import bf16_hook, ddp_hook, fp16_hook
from gcl.torch.functions import empty, monitored_barrier
from gcl.torch.launched import init_process_group
from gcl.torch.registration import Options, register

__all__ = [
    "Options",
    "bf16_hook",
    "ddp_hook",
    "empty",
    "fp16_hook",
    "init_process_group",
    "monitored_barrier",
    "register",
]

register()
