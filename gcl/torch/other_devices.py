"""Other devices: the back ends of a process group for tensors that are not on the CPU, as in "cpu:gcl,cuda:nccl"."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore, ProcessGroup, get_backend_config

from gcl.errors import ArgumentError


class OtherDevices:
    """The back ends of ``group`` by device, created at their first use.

    PyTorch does not create them for a process group that is written in Python.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self._made: dict[str, Any] = {}

    def devices(self) -> list[str]:
        """The devices that have another back end than gcl."""
        return list(self._named())

    def of(self, device: str) -> Any:
        """The back end of ``device``."""
        if device not in self._made:
            name = self._named().get(device)
            if name is None:
                raise ArgumentError(
                    f"gcl takes tensors on the CPU, but got one on {device}; pass tensor.cpu(), or give {device} a "
                    f'back end of its own, as in init_process_group("cpu:gcl,{device}:nccl")'
                )
            self._made[device] = self._make(device, name)
        return self._made[device]

    def _named(self) -> dict[str, str]:
        """Device -> name of its back end, except devices of gcl."""
        try:
            text = str(get_backend_config(self._group))
        except ValueError:  # not registered yet, or destroyed
            return {}
        pairs = (pair.split(":") for pair in text.split(",") if ":" in pair)
        return {device: name for device, name in pairs if device != "cpu" and name != "gcl"}

    def _make(self, device: str, name: str) -> Any:
        from torch.distributed import distributed_c10d as c10d

        group, store = self._group, PrefixStore(f"{device}/", self._group.get_group_store())
        timeout: timedelta = group.options._timeout
        backend: Any
        if name == "gloo":
            backend = c10d.ProcessGroupGloo(store, group.rank(), group.size(), timeout)
        elif name == "nccl" and c10d.is_nccl_available():
            options = c10d.ProcessGroupNCCL.Options()
            options._timeout = timeout
            backend = c10d.ProcessGroupNCCL(store, group.rank(), group.size(), options)
        else:
            raise ArgumentError(f"back end {name} for {device} does not work here beside gcl; use nccl or gloo")
        group._register_backend(torch.device(device), ProcessGroup.BackendType.CUSTOM, backend)
        return backend
