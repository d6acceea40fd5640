"""gcl.torch: gcl as a back end of ``torch.distributed``; importing it registers the back end "gcl"."""

from gcl.torch.functions import monitored_barrier
from gcl.torch.registration import Options, register

__all__ = ["Options", "monitored_barrier", "register"]

register()
