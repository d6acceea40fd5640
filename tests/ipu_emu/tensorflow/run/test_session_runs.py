"""Session runs: Ctrl-C, errors in their own classes, and several sessions of one program."""

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from ipu_emu.engine.engine import Engine


def endless(tf: Any, ipu: Any) -> tuple[Any, Any]:
    """A program of many iterations, and its queue."""
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.ones((64, 64), np.float32)).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST)

    def body(x: Any) -> Any:
        return outfeed.enqueue(tf.reduce_sum(tf.matmul(x, x)))

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(10_000_000, body, infeed_queue=infeed))
    return operation, infeed


class Interrupter(threading.Thread):
    """Sends Ctrl-C at the time ``asked``, shortly after ``running`` is set."""

    def __init__(self, running: threading.Event) -> None:
        super().__init__()
        self.running, self.sent_at = running, 0.0

    def run(self) -> None:
        if self.running.wait(100):
            time.sleep(0.5)
            self.sent_at = time.perf_counter()
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Interrupter:
    """A thread that interrupts a run in the middle of its steps."""
    running, run = threading.Event(), Engine.run

    def noted(engine: Engine, *arguments: Any) -> None:
        running.set()
        run(engine, *arguments)

    monkeypatch.setattr(Engine, "run", noted)
    return Interrupter(running)


def test_ctrl_c_ends_a_run_at_once(tf: Any, ipu: Any, ctrl_c: Interrupter) -> None:
    operation, infeed = endless(tf, ipu)
    with tf.Session() as session:
        session.run(infeed.initializer)
        ctrl_c.start()
        with pytest.raises(KeyboardInterrupt):
            session.run(operation)
        assert time.perf_counter() - ctrl_c.sent_at < 1.0
        ctrl_c.join()
        deadline = time.perf_counter() + 2.0
        while (
            any(thread.name == "session.run" for thread in threading.enumerate()) and time.perf_counter() < deadline
        ):
            time.sleep(0.02)
        assert not any(thread.name == "session.run" for thread in threading.enumerate())
        session.run(infeed.deleter)


def test_ctrl_c_while_a_program_is_compiled_ends_its_run(tf: Any, ipu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ipu_emu.tensorflow.run import program

    operation, infeed = endless(tf, ipu)
    compile_section, compiles, released = program.compile_section, threading.Event(), threading.Event()

    def slow(*arguments: Any, **options: Any) -> Any:
        compiles.set()
        released.wait(10.0)
        return compile_section(*arguments, **options)

    def interrupt() -> None:
        compiles.wait(10.0)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(program, "compile_section", slow)
    with tf.Session() as session:
        session.run(infeed.initializer)
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            session.run(operation)
        released.set()
        (thread,) = [worker for worker in threading.enumerate() if worker.name == "session.run"]
        thread.join(20.0)
        assert not thread.is_alive()


def infeeds() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "infeed"]


def test_an_infeed_ends_with_the_last_session_of_its_graph(tf: Any, ipu: Any) -> None:
    _, infeed = endless(tf, ipu)
    start = infeed.initializer
    with tf.Session() as other, tf.Session() as session:
        other.run(tf.constant(1))
        session.run(start)
        session.close()
        assert len(infeeds()) == 1
    assert not infeeds()


def test_an_infeed_ends_with_an_interrupted_session(tf: Any, ipu: Any, ctrl_c: Interrupter) -> None:
    operation, infeed = endless(tf, ipu)
    with tf.Session() as session:
        session.run(infeed.initializer)
        ctrl_c.start()
        with pytest.raises(KeyboardInterrupt):
            session.run(operation)
    ctrl_c.join()
    assert not infeeds()


def test_an_infeed_ends_with_a_deleted_graph(tf: Any, ipu: Any) -> None:
    def run() -> None:
        with tf.Graph().as_default():
            operation, infeed = endless(tf, ipu)
            session = tf.Session()
            session.run(infeed.initializer)
            assert operation is not None

    run()
    gc.collect()
    (thread,) = infeeds() or [threading.Thread()]
    if thread.ident is not None:
        thread.join(5.0)
    assert not infeeds()


def test_an_error_of_the_data_set_is_raised_as_it_is(tf: Any, tensorflow: Any, ipu: Any) -> None:
    def broken(value: Any) -> Any:
        raise ValueError("the file of this sample is broken")

    dataset = tf.data.Dataset.range(4).map(lambda v: tf.ensure_shape(tf.py_function(broken, [v], tf.float32), [3]))
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, outfeed.enqueue, infeed_queue=infeed))
    with tf.Session() as session:
        session.run(infeed.initializer)
        with pytest.raises(tensorflow.v2.errors.InvalidArgumentError, match="the file of this sample is broken"):
            session.run(operation)


def test_an_infeed_must_be_initialised(tf: Any, tensorflow: Any, ipu: Any) -> None:
    operation, _ = endless(tf, ipu)
    with (
        tf.Session() as session,
        pytest.raises(tensorflow.v2.errors.FailedPreconditionError, match="its initializer"),
    ):
        session.run(operation)


def test_sessions_of_one_program_have_their_own_variables(tf: Any, ipu: Any) -> None:
    def program() -> Any:
        v = tf.get_variable("v", initializer=np.float32(1))
        return v.assign(v * 2.0)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(program)
    initial = tf.global_variables_initializer()
    with tf.Session() as first, tf.Session() as other:
        first.run(initial)
        other.run(initial)
        assert [first.run(operation)[0] for _ in range(3)] == [2, 4, 8]
        assert other.run(operation) == [2]


def test_a_variable_without_initial_value_is_tensorflows_error(tf: Any, tensorflow: Any, ipu: Any) -> None:
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(lambda: tf.get_variable("v", initializer=np.float32(1)) * 2.0)
    with tf.Session() as session, pytest.raises(tensorflow.v2.errors.FailedPreconditionError, match="v"):
        session.run(operation)


def test_a_device_that_does_not_exist_is_named(tf: Any, tensorflow: Any, ipu: Any) -> None:
    with ipu.scopes.ipu_scope("/device:IPU:3"):
        operation = ipu.ipu_compiler.compile(lambda: tf.constant(1.0) * tf.random.uniform([2]))
    with tf.Session() as session, pytest.raises(tensorflow.v2.errors.FailedPreconditionError, match="IPU:3, and 1"):
        session.run(operation)


def test_a_graph_without_programs_runs_as_before(tf: Any) -> None:
    with tf.Session() as session:
        assert session.run(tf.constant(2.0) + 1.0) == 3


def test_unknown_flags_are_named(monkeypatch: pytest.MonkeyPatch, tf: Any, ipu: Any, run: Any) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_syntetic_data --max_compilation_threads=3")
    with pytest.warns(UserWarning, match="--use_syntetic_data; did you mean 'use_synthetic_data'"):
        run(lambda x: x + 1, np.ones(2, np.float32))


def test_a_program_on_synthetic_data_enqueues_zeros(monkeypatch: pytest.MonkeyPatch, tf: Any, ipu: Any) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data")
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.ones(4000, np.float32)).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(3, outfeed.enqueue, infeed_queue=infeed))
    dequeued, stop = outfeed.dequeue(), infeed.deleter
    with tf.Session() as session:
        session.run(infeed.initializer)
        session.run(operation)
        np.testing.assert_array_equal(session.run(dequeued), np.zeros((3, 4000)))
        session.run(stop)


MISTAKES = """
import threading
import traceback
import numpy as np
import ipu_emu.tensorflow.install
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

tf.disable_eager_execution()
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.ones(4, np.float32)))
outfeeds = [ipu.ipu_outfeed_queue.IPUOutfeedQueue(ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST) for _ in range(2)]
counter = tf.get_variable("counter", initializer=0)


def compiled(function, device=0):
    with ipu.scopes.ipu_scope(f"/device:IPU:{device}"):
        return ipu.ipu_compiler.compile(function)


fed = compiled(lambda: ipu.loops.repeat(2, outfeeds[0].enqueue, infeed_queue=infeed))
compiled(lambda: ipu.loops.repeat(2, lambda: outfeeds[1].enqueue(tf.ones(2))))
absent = compiled(lambda: tf.random.uniform([2]), 3)
unknown = compiled(lambda: tf.where(tf.random.uniform([2]) > 0.5))
with tf.control_dependencies(absent):
    counted = counter.assign_add(1)
session = tf.Session()
session.run(counter.initializer)


def attempt(call, *given):
    try:
        call(*given)
    except Exception as error:
        print("\\n@", traceback.format_exc())


attempt(session.run, fed)
session.run(infeed.initializer)
attempt(session.run, fed)
attempt(session.run, outfeeds[1].dequeue())
attempt(session.run, counted)
attempt(session.make_callable(absent))
thread = threading.Thread(target=attempt, args=(session.run, absent))
thread.start()
thread.join()
attempt(session.run, unknown)
print("\\n@", session.run(counter))
"""


def test_a_mistake_is_one_message_without_the_emulators_calls(tensorflow: Any) -> None:
    """It has its class and the user's line, however the session runs; ops that depend on the program do not run."""
    environ = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-c", MISTAKES], capture_output=True, text=True, env=environ, check=True)
    *mistakes, counted = done.stdout.split("\n@ ")[1:]
    missing = "FailedPreconditionError: The program is placed on /device:IPU:3"
    expected = (
        "FailedPreconditionError: The infeed is not initialised",
        "OutOfRangeError: The data set of the infeed has no more elements",
        "InvalidArgumentError: The outfeed is empty",
        *[missing] * 3,
        "UnimplementedError: Where at",
    )
    for mistake, text in zip(mistakes, expected, strict=True):
        assert text in mistake.rstrip().splitlines()[-1]
        assert set(re.findall(r"ipu_emu/tensorflow/([^\"]*)", mistake)) <= {"install/patches.py"}
        assert "most recent call last" not in mistake.partition("\n")[2]
    assert counted.split() == ["0"]
    assert "ipu_emu" not in done.stderr
    assert not re.search("op_kernel|rendezvous|infeed|outfeed|/device:IPU", done.stderr)
