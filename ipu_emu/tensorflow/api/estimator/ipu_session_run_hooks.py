"""Session run hooks: a hook that logs tensors of a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging
from tensorflow.python.training import basic_session_run_hooks, session_run_hook
from tensorflow.python.util import nest

from ipu_emu.session.options.without_effect import without_effect
from ipu_emu.tensorflow.api.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue

__all__ = ["IPULoggingTensorHook"]


class IPULoggingTensorHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Logs tensors of a program every ``every_n_iter`` runs, every ``every_n_secs`` seconds, or at the end."""

    LoggingMode = IPUOutfeedMode

    @without_effect("feed_name", "replication_factor")
    def __init__(
        self,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
        logging_mode: IPUOutfeedMode = IPUOutfeedMode.LAST,
        feed_name: str | None = None,
        replication_factor: int | None = None,
    ) -> None:
        if (every_n_iter is None) == (every_n_secs is None) and not (at_end and every_n_iter is every_n_secs is None):
            raise ValueError("exactly one of every_n_iter and every_n_secs must be provided (or at_end alone)")
        if every_n_iter is not None and every_n_iter <= 0:
            raise ValueError(f"every_n_iter must be positive, not {every_n_iter}")
        self._at_end, self._formatter = at_end, formatter
        self._never = every_n_iter is every_n_secs is None
        self._timer = basic_session_run_hooks.SecondOrStepTimer(every_n_secs, every_n_iter)
        self._outfeed = IPUOutfeedQueue(logging_mode)
        self._dequeued: Any = None
        self._runs = 0

    def log(self, tensors: Any) -> Any:
        """Log a tensor, or a list or a dict of tensors, in every iteration of the program; return an op."""
        if self._outfeed.enqueued:
            raise RuntimeError("log may be called once; give it all tensors in a list or a dict")
        named = tensors if isinstance(tensors, dict) else {tensor.name: tensor for tensor in nest.flatten(tensors)}
        return self._outfeed.enqueue({str(name): ops.convert_to_tensor(tensor) for name, tensor in named.items()})

    def begin(self) -> None:
        """Start counting runs; raise RuntimeError if no tensor is logged."""
        if not self._outfeed.enqueued:
            raise RuntimeError("nothing to log; call log in the program")
        self._timer.reset()
        self._runs, self._dequeued = 0, self._outfeed.dequeue()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Log the tensors since the last time, if the interval has passed."""
        if not self._never and self._timer.should_trigger_for_step(self._runs):
            self._write(run_context.session)
        self._runs += 1

    def end(self, session: Any) -> None:
        """Log the tensors since the last time, if requested."""
        if self._at_end:
            self._write(session)

    def _write(self, session: Any) -> None:
        if self._outfeed.is_empty:
            return
        values = session.run(self._dequeued)
        seconds, _ = self._timer.update_last_triggered_step(self._runs)
        if self._formatter is not None:
            tf_logging.info(self._formatter(values))
            return
        text = ", ".join(f"{name} = {np.asarray(value)}" for name, value in values.items())
        tf_logging.info(text if seconds is None else f"{text} ({seconds:.3f} sec)")
