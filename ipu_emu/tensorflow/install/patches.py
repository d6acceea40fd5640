"""Patches: everything in TensorFlow that is replaced, in one table, applied once and undone together.

A patch replaces an attribute of a class or a module; ``why`` states what would not work without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tensorflow.python.client.session import BaseSession
from tensorflow.python.framework import errors

from ipu_emu.tensorflow.api import estimator
from ipu_emu.tensorflow.run import session_runs
from ipu_emu.tensorflow.run.feeds.element_source import next_on_device
from ipu_emu.tensorflow.run.host_calls import own_error, translated
from ipu_emu.tensorflow.trace.devices import device_number, on_ipu
from ipu_emu.tensorflow.trace.frontend_state import frontend_state
from ipu_emu.tensorflow.trace.function_trace import current_trace
from ipu_emu.tensorflow.trace.strategies import dense, reduced_gradient
from ipu_emu.tensorflow.trace.traced_loops import range_loop, while_loop

#: Makes the replacement of the original.
Make = Callable[[Any], Any]


@dataclass(frozen=True)
class Patch:
    """``target`` is module:object.attribute; ``make`` returns the replacement of the original.

    The original may be absent (None), or a classmethod object.
    """

    target: str
    why: str
    make: Make
    #: Called with the replacement, for attributes that TensorFlow also stores elsewhere.
    placed: Callable[[Any], None] | None = None

    def owner(self) -> tuple[Any, str]:
        """The object that has the attribute, and the name of the attribute."""
        module, _, path = self.target.partition(":")
        owner: Any = import_module(module)
        *parents, last = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        return owner, last


def around(replacement: Callable[..., Any]) -> Make:
    """Return what makes a function that calls ``replacement`` with the original, then with its own arguments."""

    def make(before: Any) -> Any:
        @functools.wraps(before)
        def call(*arguments: Any, **named: Any) -> Any:
            return replacement(before, *arguments, **named)

        return call

    return make


def applied() -> bool:
    """Whether the patches are in place."""
    return bool(frontend_state().replaced)


def apply(more: Sequence[Patch] = ()) -> None:
    """Apply all patches, and ``more``; a second call has no effect."""
    replaced = frontend_state().replaced
    if replaced:
        return
    for patch in (*PATCHES, *more):
        owner, name = patch.owner()
        before = vars(owner).get(name)
        setattr(owner, name, patch.make(before))
        if patch.placed is not None:
            patch.placed(getattr(owner, name))
        replaced.append((patch, owner, name, before))


def undo() -> None:
    """Restore TensorFlow."""
    replaced = frontend_state().replaced
    while replaced:
        patch, owner, name, before = replaced.pop()
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
        if patch.placed is not None:
            patch.placed(before)


def _graph_device(before: Any, self: Any, device_name_or_function: Any) -> Any:
    number = device_number(device_name_or_function)
    return before(self, device_name_or_function) if number is None else on_ipu(number)


def _eager_device(before: Any, name: Any) -> Any:
    number = device_number(name)
    return before(name) if number is None else on_ipu(number)


def _apply_gradients(before: Any, self: Any, grads_and_vars: Any, *arguments: Any, **named: Any) -> Any:
    trace = current_trace()
    if trace is None:
        return before(self, grads_and_vars, *arguments, **named)
    pairs = [(reduced_gradient(trace, dense(gradient)), variable) for gradient, variable in grads_and_vars]
    with trace.updating():
        return before(self, pairs, *arguments, **named)


def _session_run(
    before: Any, self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
) -> Any:
    """Run a session in a separate thread while a program runs, so that Ctrl-C takes effect immediately."""
    return _run(self, lambda: before(self, fetches, feed_dict, options, run_metadata))


def _session_callable(
    before: Any, self: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False
) -> Any:
    call = before(self, fetches, feed_list, accept_options)
    return lambda *values, **options: _run(self, lambda: call(*values, **options))


def _session_close(before: Any, self: Any) -> None:
    before(self)
    session_runs.closed(self)


def _run(session: Any, call: Callable[[], Any]) -> Any:
    """Return the result of ``call``, a run of ``session``; raise the emulator's error that caused TensorFlow's."""
    collectives = frontend_state().collectives
    session_runs.opened(session)
    try:
        with nullcontext() if collectives is None else collectives.served(session, _unpatched_run(session)):
            graph = session.graph
            return session_runs.run(graph, call) if session_runs.has_programs(graph) else call()
    except errors.OpError as error:
        own = own_error(error)
        if own is None:
            raise
    raise translated(own)


def _unpatched_run(session: Any) -> Callable[[Any], Any]:
    before = vars(BaseSession)["run"].__wrapped__
    return lambda op: before(session, op)


def _estimators(before: Any) -> Any:
    """Patch in the emulator's estimators."""
    return before or estimator


def _estimators_of_the_first_version(module: Any) -> None:
    """Set or delete the same name in the API of TensorFlow 1."""
    first_version = import_module("tensorflow.compat.v1")
    if module is not None:
        vars(first_version)["estimator"] = module
    else:
        vars(first_version).pop("estimator", None)


def _always_resources(before: Any) -> bool:
    return True


PATCHES: tuple[Patch, ...] = (
    *(
        Patch(
            f"tensorflow.python.autograph.operators.control_flow:{name}",
            "the outermost loop of a function that a strategy runs is the loop of the program",
            around(loop),
        )
        for name, loop in (("_tf_range_for_stmt", range_loop), ("_tf_while_stmt", while_loop))
    ),
    Patch(
        "tensorflow.python.data.ops.iterator_ops:OwnedIterator._next_internal",
        "an iterator that a program takes elements of is an infeed",
        around(next_on_device),
    ),
    Patch(
        "tensorflow:estimator",
        "TensorFlow has no estimators any more, and model functions name their modes",
        _estimators,
        _estimators_of_the_first_version,
    ),
    Patch(
        "tensorflow.python.framework.ops:Graph.device",
        "TensorFlow refuses the name of a device that it does not have",
        around(_graph_device),
    ),
    Patch(
        "tensorflow.python.eager.context:device",
        "the same for eager execution",
        around(_eager_device),
    ),
    Patch(
        "tensorflow.python.training.optimizer:Optimizer.apply_gradients",
        "the ops of a weight update must be known, and their gradients dense: rows with indices that repeat "
        "need an op whose shape depends on data",
        around(_apply_gradients),
    ),
    Patch(
        "tensorflow.python.ops.resource_variables_toggle:resource_variables_enabled",
        "a program for the IPU uses variables of its graph, such as the global step, which must be resources, and "
        "disable_v2_behavior makes others",
        around(_always_resources),
    ),
    Patch(
        "tensorflow.python.client.session:BaseSession.run",
        "errors of a program keep their class, and Ctrl-C ends a run at once",
        around(_session_run),
    ),
    Patch(
        "tensorflow.python.client.session:BaseSession.make_callable",
        "the same for runs that are prepared once",
        around(_session_callable),
    ),
    Patch(
        "tensorflow.python.client.session:BaseSession.close",
        "the threads of infeeds end with the last session of their graph",
        around(_session_close),
    ),
)
