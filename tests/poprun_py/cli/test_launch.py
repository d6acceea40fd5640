"""Launch: a job imports only the modules that it needs."""

from __future__ import annotations

import subprocess
import sys

#: Modules that take long to import, and that only jobs with a partition, or with files left to remove, need.
SLOW = {"bz2", "click", "lzma", "numpy", "poprun_py.vipu.partition", "shutil", "subprocess", "tempfile"}


def test_a_plain_job_imports_nothing_slow() -> None:
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from poprun_py.cli import main\n"
        "code = main(['--num-instances', '1', 'true'])\n"
        "print(code, *sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    code, *imported = done.stdout.split()
    assert code == "0"
    assert "poprun_py.job.event_loop" in imported
    assert not SLOW & set(imported)
