"""Host processor: without the instructions that kernels need, a session is refused before anything is compiled."""

import subprocess
import sys
from pathlib import Path

import pytest

from ipu_emu.errors import UnsupportedError
from ipu_emu.hardware.host_processor import check_host_processor

ROOT = Path(__file__).parents[3]
#: A session of one op, whose host reports another processor.
PROGRAM = """
import builtins, io, platform
import ipu_emu.popart as popart

def opened(path, *more, _open=builtins.open, **named):
    return io.StringIO("flags : sse2 fma f16c bmi2\\n") if path == "/proc/cpuinfo" else _open(path, *more, **named)

platform.machine, builtins.open = lambda: "MACHINE", opened
builder = popart.Builder()
y = builder.aiOnnx.relu([builder.addInputTensor("FLOAT", [2, 2])])
flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All")})
device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
try:
    popart.InferenceSession(builder.getModelProto(), flow, device)
except popart.popart_exception as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        ("x86_64", "the emulated IPUs need avx2, which this processor does not have; use a host with AVX2 and FMA"),
        ("aarch64", "the emulated IPUs need an x86-64 processor, this host has aarch64; use an x86-64 host"),
    ],
)
def test_a_session_is_refused_in_one_sentence(machine: str, says: str) -> None:
    program = PROGRAM.replace("MACHINE", machine)
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert run.stdout.startswith(says)
    assert len(run.stdout.splitlines()) == 1


def test_this_host_is_supported_and_one_that_shows_no_features_is_not_refused() -> None:
    check_host_processor()
    check_host_processor(())
    check_host_processor(("avx2", "fma", "f16c", "bmi2", "avx512f"))
    with pytest.raises(UnsupportedError, match="need fma, bmi2"):
        check_host_processor(("avx2", "f16c"))
