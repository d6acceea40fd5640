"""Ctrl-C while a kernel is loaded: it is not lost, and the kernel is loaded completely."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from gcl.kernels.jit import SharedCache
from gcl.kernels.uninterrupted import uninterrupted


def interrupted_callback() -> int:
    """The value that C gets from a callback during which Ctrl-C arrives; 0 if the callback does not return."""

    @ctypes.CFUNCTYPE(ctypes.c_int)
    def callback() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return 7

    return int(callback())


def test_a_callback_ends_and_the_interrupt_comes_after_it() -> None:
    result = 0
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        result = interrupted_callback()
    assert result == 7
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_handler_of_the_program_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    before = signal.signal(signal.SIGINT, lambda *_: calls.append("mine"))
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            assert not calls
        assert calls == ["mine"]
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_and_programs_that_ignore_it_are_as_before() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            done.append(1)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with uninterrupted():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == [1]


def test_a_kernel_is_loaded_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    monkeypatch.setattr("gcl.kernels.jit.initialise_runtime", lambda context: None)

    def load(*_: object) -> str:
        loaded.append(interrupted_callback())
        return "kernel"

    stored = SimpleNamespace(index=tmp_path / "index", load=load, check_files=lambda _: None)
    cache = SharedCache(stored, __file__)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        cache.load("signature", None)
    assert loaded == [7]
