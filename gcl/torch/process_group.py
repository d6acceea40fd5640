"""Process group: gcl's collectives, and the other methods of a ``torch.distributed.ProcessGroup``.

Sends and receives are matched by source and tag, independently of collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.autograd import _profiler_enabled
from torch.autograd.profiler import record_function
from torch.distributed import Backend, Store

from gcl.errors import GclError
from gcl.torch.calls import Tensors
from gcl.torch.collective_calls import CollectiveCalls
from gcl.torch.one_host.host_group import HostGroup
from gcl.torch.several_hosts.two_levels import SeveralHosts
from gcl.torch.tensors import Flat, bytes_of, contiguous
from gcl.torch.work import GclWork, as_dist_error


class GclProcessGroup(CollectiveCalls):
    """A process group: rank ``rank`` of ``ranks``, joined by ``group``; ``timeout`` in seconds."""

    def __init__(self, store: Store, group: HostGroup | SeveralHosts, timeout: float) -> None:
        super().__init__(store, group, timeout)
        self._name = self._description = ""

    # properties of a group and of its back end

    def getBackendName(self) -> str:  # noqa: N802  PyTorch's name
        """The name by which programs select this back end."""
        return "gcl"

    def name(self) -> str:
        """As ``getBackendName``."""
        return "gcl"

    @property
    def group_name(self) -> str:
        """The name that PyTorch gave the group."""
        return self._name

    @property
    def group_desc(self) -> str:
        """The description of the group."""
        return self._description

    def _set_group_name(self, name: str) -> None:
        super()._set_group_name(name)
        self._name = name

    def _set_group_desc(self, desc: str) -> None:
        super()._set_group_desc(desc)
        self._description = desc

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), *map(torch.device, self._others.devices())]

    def _get_backend(self, device: torch.device) -> Any:
        return self if torch.device(device).type == "cpu" else self._others.of(torch.device(device).type)

    supports_splitting = supports_coalescing = supports_time_estimate = False

    @property
    def options(self) -> Backend.Options:
        """The options of a back end."""
        return Backend.Options("gcl", timedelta(seconds=self._timeout))

    def set_timeout(self, timeout: timedelta) -> None:
        """Bound every later wait of this rank by ``timeout``."""
        self._timeout = self._group.timeout = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    # memory that the ranks share

    def empty(self, size: Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
        """A tensor in memory that the ranks of the host share."""
        return self._collectives.empty(size, dtype or torch.get_default_dtype())

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Whether ``allocate_tensor`` has memory for ``device``."""
        return bool(torch.device(device).type == "cpu")

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """As ``empty``; FSDP asks for it after ``set_allocate_memory_from_process_group_for_comm``."""
        return self.empty([size], dtype)

    def monitored_barrier(self, timeout: timedelta | float | None = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks; rank 0 names the first, or all, that do not come."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        seconds = self._timeout if seconds is None else seconds
        self._background.drain()
        self._group.monitored_barrier(seconds, all_ranks=wait_all_ranks)

    # sends and receives

    def send(self, tensors: Tensors, target: int, tag: int) -> Any:
        """Send a tensor to rank ``target``."""
        if far := self._elsewhere(tensors):
            return far.send(tensors, target, tag)
        self._check("send", tensors)
        flat = contiguous(tensors[0])
        return self._message("send", tensors, lambda: self._group.messages.send(bytes_of(flat), target, tag))

    def recv(self, tensors: Tensors, source: int, tag: int) -> Any:
        """Receive a tensor from rank ``source``."""
        if far := self._elsewhere(tensors):
            return far.recv(tensors, source, tag)
        return self._receive("recv", tensors, source, tag)

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        """Receive a tensor from any rank."""
        if far := self._elsewhere(tensors):
            return far.recv_anysource(tensors, tag)
        return self._receive("recvAnySource", tensors, None, tag)

    def _receive(self, name: str, tensors: Tensors, source: int | None, tag: int) -> GclWork:
        self._check(name, tensors)
        flat = Flat(tensors[0], reads=False)
        return self._message(
            name, tensors, lambda: self._group.messages.receive(bytes_of(flat.tensor), source, tag, flat.store)
        )

    def _message(self, name: str, tensors: Tensors, begin: Callable[[], GclWork]) -> GclWork:
        try:
            if _profiler_enabled():
                with record_function(f"gcl:{name}"):
                    return begin()
            return begin()
        except GclError as error:
            dist_error = as_dist_error(error)
            raise dist_error from dist_error.__cause__

    # the end

    def shutdown(self) -> None:
        """Leave, and notify ranks that still wait for this one."""
        self._background.stop()
        self._group.close()

    def abort(self) -> None:
        """Leave immediately: ranks that wait for this one, and calls of this one that wait for others, raise."""
        self._group.abort()
