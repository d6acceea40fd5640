"""Host: seconds to bring the input of a micro-batch to the IPUs: network, gateway, and preparation on hosts.

    network    bytes of all replicas of a machine / 12.5 GB/s (100 GbE)
    gateway    bytes of an IPU / 16 GB/s
    hosts      bytes of all replicas / (hosts x bytes per second of a host, as ipu-emu hostio measures them)

The slowest counts: the three work at the same time.
"""

from __future__ import annotations

from typing import Any

from ipu_emu.predict.job import DTYPES, Job

__all__ = ["GATEWAY_LINK", "NETWORK", "bytes_per_sample", "input_dtype", "limits"]

#: Bytes per second of a machine's network, and of an IPU's link to its gateway, behind which Streaming Memory is.
NETWORK, GATEWAY_LINK = 12.5e9, 16e9
_IPUS_PER_MACHINE = 4


def input_dtype(job: Job) -> str:
    """The requested element type of inputs, else that of the network."""
    return job.input_dtype or job.network.input_dtype


def bytes_per_sample(job: Job) -> float:
    """Bytes of a sequence or an image, with its labels."""
    return job.network.input_values * DTYPES[input_dtype(job)] + job.network.label_bytes


def limits(job: Job, replicas: Any, batch: Any) -> dict[str, Any]:
    """Seconds of a micro-batch by limit; ``replicas`` and ``batch`` may be arrays."""
    sent = batch * bytes_per_sample(job)
    sharing = max(1, _IPUS_PER_MACHINE // job.ipus)
    found = {"network": sent * sharing / NETWORK, "gateway": sent / GATEWAY_LINK}
    if job.host_rate:
        found["hosts"] = sent * replicas / (job.host_count * job.host_rate)
    return found
