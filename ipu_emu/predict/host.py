"""Host: seconds to transfer input to the IPUs, and results of inference back: network, gateway, work of hosts.

    network    bytes of all replicas of a machine / 12.5 GB/s (100 GbE)
    gateway    bytes of an IPU / 16 GB/s
    hosts      bytes of all replicas / (hosts x bytes per second of a host, as ipu-emu hostio measures them)

The slowest determines the time, because the three overlap.
"""

from __future__ import annotations

from typing import Any

from ipu_emu.hardware.rates import GATEWAY_LINK, host_rate
from ipu_emu.predict.job import DTYPES, Job


def input_dtype(job: Job) -> str:
    """The requested element type of inputs, else that of the network."""
    return job.input_dtype or job.network.input_dtype


def bytes_per_sample(job: Job) -> float:
    """Bytes of a sequence or an image, with its labels."""
    return job.network.input_values * DTYPES[input_dtype(job)] + job.network.label_bytes


def result_bytes(job: Job) -> float:
    """Bytes of the results of a sequence or an image for the host, in inference only."""
    return 0.0 if job.training else job.network.result_values * job.itemsize


def transfers(job: Job) -> tuple[int, int]:
    """Numbers of transfers of a micro-batch, each with a sync: (of inputs; of labels and loss, or of results)."""
    return job.network.inputs, 1 + (job.network.labels if job.training else 0)


def limits(job: Job, replicas: Any, batch: Any) -> dict[str, Any]:
    """Seconds of the transfers of a micro-batch by limit; ``replicas`` and ``batch`` may be arrays."""
    input_bytes = batch * bytes_per_sample(job)
    sent = input_bytes + batch * result_bytes(job)
    seconds = {"network": sent / host_rate(job.ipus), "gateway": sent / GATEWAY_LINK}
    if job.host_rate:
        seconds["hosts"] = input_bytes * replicas / (job.host_count * job.host_rate)
    return seconds
