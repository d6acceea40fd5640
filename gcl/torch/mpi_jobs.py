"""MPI jobs: process groups in jobs of poprun-py and mpirun, whose ranks connect over MPI, then through a Store."""

from __future__ import annotations

import os
import socket
from typing import Any

import torch.distributed as dist

import popdist_py
from gcl.torch.store_all_gather import say_mpi_job
from popdist_py.environment import Environment, mpirun_rank
from popdist_py.layout import Layout


def init_process_group(backend: str = "gcl", **options: Any) -> None:
    """As ``torch.distributed.init_process_group``, in a job of ``poprun-py`` or ``mpirun``.

    Programs started by ``torchrun`` or ``torch.multiprocessing.spawn`` do not need it.
    """
    _take_mpirun_rank()
    popdist_py.init()
    job = popdist_py.host_backend()
    store: dist.Store | None = None
    if job.rank == 0:
        store = dist.TCPStore(socket.gethostname(), 0, is_master=True, wait_for_workers=False)
        say_mpi_job(store)
    text = f"{socket.gethostname()} {store.port if store else 0}"
    host, port = job.all_gather(text.encode(), "init_process_group")[0].decode().split()
    if store is None:
        store = dist.TCPStore(host, int(port), is_master=False)
    dist.init_process_group(backend, store=store, rank=job.rank, world_size=job.size, **options)


def _take_mpirun_rank() -> None:
    """In a job of a plain mpirun, set the variables that ``poprun-py`` sets: an instance of one replica each."""
    if place := mpirun_rank(os.environ):
        rank, size = place
        instance = Environment.of_instance(Layout.of([1] * size), rank, local_instance_index=rank)
        os.environ.update(instance.to_environ())
