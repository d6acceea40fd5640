"""DDP hooks: communication hooks of DistributedDataParallel whose all-reduce copies nothing between ranks of a host.

    model.register_comm_hook(None, gcl.torch.ddp_hook)

``None`` is the default group; pass the process group if DDP has another one. DDP reads the annotations at run time,
so they are types, not strings.
"""

import torch
from torch.distributed import GradBucket, ProcessGroup
from torch.futures import Future

from gcl.torch.functions import group_of


def ddp_hook(group: ProcessGroup | None, bucket: GradBucket) -> Future[torch.Tensor]:
    """Average the gradients of ``bucket``, whose memory moves to shared memory of the ranks of the host."""
    return group_of(group).average_bucket(bucket.index(), bucket.buffer()).get_future()


def fp16_hook(group: ProcessGroup | None, bucket: GradBucket) -> Future[torch.Tensor]:
    """Average the gradients as float16, summed in float32: half of the bytes."""
    return group_of(group).average_bucket(bucket.index(), bucket.buffer(), torch.float16).get_future()


def bf16_hook(group: ProcessGroup | None, bucket: GradBucket) -> Future[torch.Tensor]:
    """Average the gradients as bfloat16, summed in float32: half of the bytes, with the range of float32."""
    return group_of(group).average_bucket(bucket.index(), bucket.buffer(), torch.bfloat16).get_future()
