"""Compiler pages: LLVM's code is released from the memory of a process, which can still compile."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from llvmlite.utils import get_library_name

from ipu_emu.ops.codegen.compiled_call import relocation
from ipu_emu.ops.codegen.llvm_compiler import code_of, give_back_compiler


def resident(library: str) -> int:
    """Kilobytes of the machine code of ``library`` that this process holds."""
    part = rf"r-xp [^\n]*/{re.escape(library)}\n(?:[A-Z].*\n)*?Rss: +(\d+) kB"
    return sum(map(int, re.findall(part, Path("/proc/self/smaps").read_text())))


def copied() -> np.ndarray:
    source = np.random.default_rng(0).standard_normal((3, 5, 7)).astype(np.float32)
    target = np.empty((7, 5, 3), np.float32).transpose(2, 1, 0)
    relocation(source, target)()
    np.testing.assert_array_equal(source, target)
    return target


def test_llvm_leaves_memory_and_works_on() -> None:
    copied()
    library = get_library_name()
    assert len(list(code_of(library))) == 1
    before = resident(library)
    give_back_compiler()
    assert resident(library) < before / 4
    copied()


def test_a_library_that_is_not_loaded() -> None:
    assert list(code_of("libnone.so")) == []
