"""Trace: the recorded activity of the processes of a job, and the marks that programs add.

    with ipu_emu.trace.span("tokenise"):        @ipu_emu.trace.span("augment")
        ...                                     def augment(image): ...

Nothing is recorded unless ``poprun-py --trace DIR`` or ``IPU_EMU_TRACE=DIR`` names a folder.
"""

from ipu_emu.trace.process_trace import ProcessTrace, read_process
from ipu_emu.trace.run import Run, read_run
from popdist_py.trace import Category, counter, flow, instant, span, start, stop

__all__ = [
    "Category", "ProcessTrace", "Run", "counter", "flow", "instant", "read_process", "read_run", "span", "start",
    "stop",
]  # fmt: skip
