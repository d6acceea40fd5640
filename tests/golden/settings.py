"""Settings: what may differ between two machines and must not change a bit, as variables of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from ipu_emu.ops.codegen.llvm_compiler import PROCESSOR

__all__ = ["KERNELS", "NATIVE", "SETTINGS", "Setting"]

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Setting:
    """``variables`` of all processes; ``instances`` that share the four replicas of the programs that are spread.

    ``flags``: what /proc/cpuinfo must list.
    """

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    instances: int = 0
    flags: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the processes: without what other settings set, and without that of a job."""
        own = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
        own = {name: value for name, value in own.items() if not name.startswith(("POPDIST_", "PMI_", "OMPI_"))}
        paths = [str(_ROOT), own.get("PYTHONPATH", "")]
        return own | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), **self.variables}

    def obstacle(self) -> str:
        """Why this host cannot run the setting; empty if it can."""
        missing = [flag for flag in self.flags if flag not in _flags()]
        if missing:
            return f"this processor has no {', '.join(missing)}"
        return _refused(self.variables[PROCESSOR]) if PROCESSOR in self.variables else ""


@cache
def _flags() -> frozenset[str]:
    lines = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")]
    return frozenset(lines[0].split()) if lines else frozenset()


@cache
def _refused(processor: str) -> str:
    """What the emulator says of a processor whose code this host cannot run."""
    code = "from ipu_emu.ops.codegen.llvm_compiler import vector_width; vector_width()"
    environ = os.environ | {PROCESSOR: processor, "PYTHONPATH": str(_ROOT)}
    ended = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    return ended.stderr.splitlines()[-1] if ended.returncode else ""


def _kernels(name: str) -> Setting:
    """Kernels of the emulator, and those of gcl, which numba compiles, for another processor."""
    return Setting(f"kernels for {name}", {PROCESSOR: name, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ""})


def _threads(count: int) -> Setting:
    variables = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), str(count))
    return Setting(f"{count} BLAS thread{'s' if count > 1 else ''}", variables)


def _core(name: str, *flags: str) -> Setting:
    return Setting(f"OpenBLAS for {name}", {"OPENBLAS_CORETYPE": name}, flags=flags)


def _spread(setting: Setting, *counts: int) -> list[Setting]:
    return [
        Setting(f"{setting.name}, {count} x {4 // count}", setting.variables, count, setting.flags)
        for count in counts
    ]


NATIVE = Setting("this processor")
KERNELS = [_kernels(name) for name in ("x86-64-v3", "haswell", "skylake-avx512", "znver4")]
#: Those of numpy that it would use here.
_NUMPY = " ".join(np.show_config(mode="dicts")["SIMD Extensions"].get("found", []))

#: Those of one instance.
_ALONE = [
    NATIVE,
    *KERNELS,
    _core("Haswell", "avx2"),
    _core("SkylakeX", "avx512f"),
    _core("Zen", "avx2"),
    _core("Nehalem"),
    Setting("numpy without its features", {"NPY_DISABLE_CPU_FEATURES": _NUMPY}),
    Setting("PyTorch without its features", {"ATEN_CPU_CAPABILITY": "default"}),
    Setting("MKL for SSE 4.2", {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}),
    Setting("libm without FMA", {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"}),
    *map(_threads, (1, 2, 8)),
]

SETTINGS = [*_ALONE, *(spread for setting in _ALONE for spread in _spread(setting, 2, 4))]

_VARIABLES = frozenset(name for setting in SETTINGS for name in setting.variables)
