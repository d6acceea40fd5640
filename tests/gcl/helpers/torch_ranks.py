"""Ranks of a PyTorch job as forked processes: importing PyTorch takes seconds, a fork milliseconds."""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import gcl.torch

__all__ = ["run_ranks"]

torch.set_num_threads(1)  # threads do not survive a fork
_SECONDS = 60.0


def run_ranks(
    ranks: int,
    program: Callable[..., Any],
    *arguments: object,
    backend: str = "gcl",
    timeout: float = 30.0,
    dead: tuple[int, ...] = (),
    hosts: tuple[str, ...] = (),
) -> list[Any]:
    """The results of ``program(*arguments)`` on each of ``ranks``, after ``init_process_group``.

    Raise AssertionError with the tracebacks of ranks that fail; ranks in ``dead`` may die, and return None.
    ``hosts``: the name of each rank's host, if there are several.
    """
    import_module("torch._dynamo")  # which DDP imports: once here instead of on every rank
    forks = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(ranks):
            mine, theirs = forks.Pipe(duplex=False)
            options = gcl.torch.Options(host=hosts[rank]) if hosts else None
            process_args = (
                rank,
                ranks,
                str(Path(folder) / "store"),
                backend,
                timeout,
                options,
                theirs,
                program,
                arguments,
            )
            process = forks.Process(target=_run, args=process_args)
            process.start()
            theirs.close()
            started.append((process, mine))
        answers = [_answer(mine) for _, mine in started]
        for process, _ in started:
            process.join(5.0)
            if process.is_alive():
                process.kill()
    faults = [
        f"rank {rank}: {answer[1] if answer else 'died or did not answer'}"
        for rank, answer in enumerate(answers)
        if rank not in dead and (answer is None or answer[1])
    ]
    assert not faults, "\n".join(faults)
    return [answer[0] if answer else None for answer in answers]


def _answer(pipe: Connection) -> Any:
    """The result that a rank has sent, None if it died or takes too long."""
    try:
        return pipe.recv() if pipe.poll(_SECONDS) else None
    except EOFError:
        return None


def _run(
    rank: int,
    ranks: int,
    path: str,
    backend: str,
    timeout: float,
    options: object,
    pipe: Connection,
    program: Callable[..., Any],
    arguments: tuple[object, ...],
) -> None:
    try:
        dist.init_process_group(
            backend,
            store=dist.FileStore(path, ranks),
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=timeout),
            pg_options=options,
        )
        pipe.send((program(*arguments), ""))
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:
        pipe.send((None, traceback.format_exc()))
