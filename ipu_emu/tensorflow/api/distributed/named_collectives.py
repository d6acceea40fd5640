"""Named collectives: host collectives in a session, which instances may reach in different orders.

TensorFlow runs ops that do not depend on each other in any order, and on few threads, none of which may wait. So an
op posts a collective under its name, and the next op waits in a queue, which takes no thread. Meanwhile a thread of
the run agrees with the other instances, in rounds, on what all of them have posted, calls that, and fills the queues.

    instance 0   posts a, b        a        b
    instance 1   posts a           a   posts b   b
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import sleep
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.framework import dtypes, ops
from tensorflow.python.ops import data_flow_ops

import popdist_py
from ipu_emu.errors import EmulatorError
from ipu_emu.tensorflow.run.host_calls import host_call

__all__ = ["NamedCollectives"]

#: Rounds after which an instance sleeps longer between rounds.
_QUICK_ROUNDS = 200
_QUICK_TICK, _TICK = 0.001, 0.02

#: A collective to call, and the op that passes its result to the waiting op.
_Posted = tuple[Callable[[], Any], Any]


class NamedCollectives:
    """The collectives posted in this instance, and the results not yet taken.

    After ``most_rounds`` rounds (a minute) without a collective that all instances have posted, the posted ones raise
    an error. Instances count the same rounds, so that all of them give up in the same round.
    """

    def __init__(self, most_rounds: int = 3200) -> None:
        self.most_rounds = most_rounds
        self._posted: defaultdict[str, deque[_Posted]] = defaultdict(deque)
        self._results: defaultdict[str, deque[Future[Any]]] = defaultdict(deque)
        self._graphs: WeakSet[Any] = WeakSet()
        self._serving, self._wake = Lock(), Event()

    def tensor(self, name: str, function: Callable[[NDArray[Any]], Any], tensor: Any) -> Any:
        """The result of ``function``, a collective, for the tensor ``tensor`` whenever a session runs it."""
        graph = ops.get_default_graph()
        self._graphs.add(graph)
        scope = re.sub(r"[^A-Za-z0-9.]", "_", f"collective_{name}")  # names of ops allow fewer characters
        queue = data_flow_ops.FIFOQueue(-1, [dtypes.bool], [()], shared_name=graph.unique_name(f"{scope}_done"))
        tell = queue.enqueue(True)

        def post(array: Any) -> None:
            self._posted[name].append((lambda: function(np.asarray(array)), tell))
            self._wake.set()

        def take() -> Any:
            return self._results[name].popleft().result()

        with ops.control_dependencies([host_call(post, [tensor], [], f"{scope}_post")]):
            done = queue.dequeue()
        with ops.control_dependencies([done]):
            return host_call(take, [], tensor.dtype, f"{scope}_take")

    @contextmanager
    def served(self, session: Any, run: Callable[[Any], Any]) -> Iterator[None]:
        """Call the collectives of a run of ``session`` while the block lasts; ``run`` runs an op in it."""
        if session.graph not in self._graphs:
            yield
            return
        over = Event()
        Thread(target=self._serve, args=(run, over), name="host collectives", daemon=True).start()
        try:
            yield
        except BaseException:
            self._posted.clear()
            raise
        finally:
            over.set()
            self._wake.set()

    def _serve(self, run: Callable[[Any], Any], over: Event) -> None:
        with self._serving:
            idle = 0
            while not over.is_set():
                own = sorted(name for name, calls in list(self._posted.items()) if calls)
                if not own:
                    self._wake.wait(_TICK)
                    self._wake.clear()
                    continue
                try:
                    common = _common(own, idle >= self.most_rounds)
                except BaseException as error:
                    for name in own:
                        self._call(name, run, error)
                    continue
                for name in common:
                    self._call(name, run)
                idle = 0 if common else idle + 1
                if idle:
                    sleep(_QUICK_TICK if idle < _QUICK_ROUNDS else _TICK)

    def _call(self, name: str, run: Callable[[Any], Any], error: BaseException | None = None) -> None:
        """Call a collective that all instances have posted, or raise ``error`` in the op that waits for it."""
        function, tell = self._posted[name].popleft()
        result: Future[Any] = Future()
        try:
            if error is not None:
                raise error
            result.set_result(function())
        except BaseException as failure:
            result.set_exception(failure)
        self._results[name].append(result)
        run(tell)


def _common(own: list[str], is_last: bool) -> list[str]:
    """The names that all instances have posted; raise EmulatorError if there are none in the last round."""
    text = json.dumps(own).encode()
    longest = int(np.max(popdist_py.allGather(len(text))))
    parts = popdist_py.allGather(np.frombuffer(text.ljust(longest), np.uint8))
    everywhere = [json.loads(part.tobytes()) for part in parts]
    common = sorted(set.intersection(*map(set, everywhere)))
    if not common and is_last:
        listed = "; ".join(f"instance {number} in {', '.join(names)}" for number, names in enumerate(everywhere))
        raise EmulatorError(f"Instances wait in different host collectives: {listed}; give all the same names")
    return common
