"""Refused models: PopART's errors with their texts; models of other programs run if the emulator supports them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import of_another_program

Build = Callable[[popart.Builder], str]
F = np.float32


def x(b: popart.Builder, *shape: int, t: str = "FLOAT") -> str:
    return b.addInputTensor(t, list(shape))


def w(b: popart.Builder, *shape: int) -> str:
    return b.addInitializedInputTensor(np.ones(shape, F))


def constant(b: popart.Builder, *values: int) -> str:
    return str(b.aiOnnx.constant(np.array(values, np.int64)))


def session_of(
    build: Build,
    *,
    opset: int = 10,
    training: bool = False,
    anchors: list[str] | None = None,
    patterns: popart.Patterns | None = None,
    limits: bool = True,
    ipus: int = 1,
    **values: Any,
) -> None:
    builder, opts = popart.Builder(opsets={"ai.onnx": opset}), popart.SessionOptions()
    for name, value in values.items():
        setattr(opts, name, value)
    y = build(builder)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus})
    loss = builder.aiGraphcore.identityloss([y]) if training else ""
    flow = popart.DataFlow(1, anchors or [y])
    proto = builder.getModelProto() if limits else of_another_program(builder.getModelProto())
    if training:
        session: Any = popart.TrainingSession(
            proto, flow, loss, popart.SGD({}), device, userOptions=opts, patterns=patterns
        )
    else:
        session = popart.InferenceSession(proto, flow, device, userOptions=opts, patterns=patterns)
    session.prepareDevice()


def recurrent(kind: str, gates: int, **values: Any) -> Build:
    def build(b: popart.Builder) -> str:
        operands = [x(b, 2, 2, 3), w(b, 1, gates * 4, 3), w(b, 1, gates * 4, 4)]
        return str(getattr(b.aiOnnx, kind)(operands, 3 if kind == "lstm" else 2, **values)[0])

    return build


def normalised(b: popart.Builder, shape: tuple[int, ...], channels: int = 2) -> str:
    statistics = [w(b, channels) for _ in range(4)]
    return str(b.aiOnnx.batchnormalization([x(b, *shape), *statistics], 1)[0])


RNN = "Op(ai.onnx.RNN:7, inputs=[input, init_input, init_input/1], outputs=[RNN:0, RNN:1])"
#: (text, build) of models that a session of opset 10 refuses.
OF_A_SESSION: list[tuple[str, Build]] = [
    (f"Activation type 'bad' is not supported for {RNN}", recurrent("rnn", 1, activations=["bad"])),
    (f"{RNN} only supports 1 activation, 2 were specified", recurrent("rnn", 1, activations=["Tanh", "Tanh"])),
    (f"Attribute `clip' of {RNN} is not supported", recurrent("rnn", 1, clip=1.0)),
    (f"Attribute `activation_alpha' of {RNN} is not supported", recurrent("rnn", 1, activation_alpha=[1.0])),
    (f"{RNN} only supports `forward' direction", recurrent("rnn", 1, direction="reverse")),
    (
        f"hidden_size attribute passed to {RNN} (7) does not match hidden size calculated from "
        "recurrenceWeights tensor (4).",
        recurrent("rnn", 1, hidden_size=7),
    ),
    ("Activation type 'bad' is not supported", recurrent("lstm", 4, activations=["bad", "Tanh", "Tanh"])),
    (
        "LSTM activations must be the same for output and forget gates.",
        recurrent("lstm", 4, activations=["Sigmoid", "Tanh", "Relu"]),
    ),
    (
        "Too many activations (2) specified. Number of activations should be 1 or 3.",
        recurrent("lstm", 4, activations=["Sigmoid", "Tanh"]),
    ),
    ("LSTMOp attribute `direction' must be unset or `forward'", recurrent("lstm", 4, direction="reverse")),
    ("LSTMOp attribute `clip' is not supported", recurrent("lstm", 4, clip=1.0)),
    ("LSTMOp attribute `input_forget' must be set to 0", recurrent("lstm", 4, input_forget=1)),
    (
        "Op(ai.onnx.RandomNormal:1, inputs=[], outputs=[RandomNormal:0]): Optional seed attribute is not "
        "supported. Use "
        "session::setRandomSeed instead.",
        lambda b: b.aiOnnx.randomnormal([2], seed=1.0),
    ),
    ("The data type DOUBLE is not supported in Poplar", lambda b: b.aiOnnx.randomuniform([2], dtype=11)),
    (
        "`count_include_pad` is not supported",
        lambda b: b.aiOnnx.averagepool([x(b, 1, 1, 5, 5)], [2, 2], count_include_pad=1),
    ),
    (
        "MaxPool has dilations [2 2]. Dilations of value other than 1 are currently not supported.",
        lambda b: b.aiOnnx.maxpool([x(b, 1, 1, 5, 5)], 1, [2, 2], dilations=[2, 2])[0],
    ),
    ("batch norm requires X to have a rank >= 3.  x has rank 2", lambda b: normalised(b, (2, 2))),
    (
        "expected shape of batch norm input tensor init_input ([3]) to be [2] to match dimension 1 of X ([1 2 3 3])",
        lambda b: normalised(b, (1, 2, 3, 3), 3),
    ),
    (
        "Padding vector (length 3) doesn't contain 2 entries per input dimension 2",
        lambda b: b.aiOnnx.pad([x(b, 2, 2)], [1, 1, 1]),
    ),
    (
        "np broadcasting failed on 'Op(ai.onnx.Add:7, inputs=[input, input/1], outputs=[Add:0])', frames [2, 3] "
        "and [4] "
        "are not aligned",
        lambda b: b.aiOnnx.add([x(b, 2, 3), x(b, 4)]),
    ),
    (
        "np broadcasting failed on Op(named (ai.onnx.Add:7), inputs=[input, input/1], outputs=[Add:0]), incompatible "
        "types FLOAT16 and FLOAT (shapes [2] and [])",
        lambda b: b.aiOnnx.add([x(b, 2, t="FLOAT16"), x(b)], "named"),
    ),
    (
        "Op(ai.onnx.MatMul:9, inputs=[input, input/1], outputs=[MatMul:0]) doesn't support scalar tensor input as "
        "the lhs "
        "input",
        lambda b: b.aiOnnx.matmul([x(b), x(b, 4)]),
    ),
    (
        "Op(ai.onnx.MatMul:9, inputs=[input, input/1], outputs=[MatMul:0]) contracting dimensions unequal: lhs "
        "'input' "
        "[2 3], rhs 'input/1' [4 5]",
        lambda b: b.aiOnnx.matmul([x(b, 2, 3), x(b, 4, 5)]),
    ),
    (
        "shape input to ReshapeOp can only use -1 to specify one unknown dimension: [-1, -1]",
        lambda b: b.reshape_const(b.aiOnnx, [x(b, 4)], [-1, -1]),
    ),
    (
        "Expand shape constraint: corresponding dimensions must have the same value or one of them must be 1",
        lambda b: b.aiOnnx.expand([x(b, 3), constant(b, 4)]),
    ),
    (
        "Need the value of the Op(ai.onnx.Slice:10, inputs=[input, input/1, Constant:0/INT32], outputs=[Slice:0]) "
        "input "
        "'starts' to determine the output shape, but was unable because input/1 is not a constant; make it with "
        "constant() or an initializer",
        lambda b: b.aiOnnx.slice([x(b, 4), x(b, 1, t="INT32"), constant(b, 2)]),
    ),
    (
        "The 'Repeats' Tensor `input/1' must be of type Constant",
        lambda b: b.aiOnnx.tile([x(b, 4), x(b, 1, t="INT32")]),
    ),
    (
        "'Repeats' tensor `Constant:0' should have one element for each dimension of the data tensor",
        lambda b: b.aiOnnx.tile([x(b, 4), constant(b, 2, 2)]),
    ),
    (
        "Rank of permutation tensor [1 0], rank 2 must be equal to rank of input tensor, shape [2 3 4], rank 3.",
        lambda b: b.aiOnnx.transpose([x(b, 2, 3, 4)], perm=[1, 0]),
    ),
    (
        "ReverseOp 'Op(ai.graphcore.Reverse:1, inputs=[input], outputs=[Reverse:0])' invalid dimension '-1'. Only "
        "positive "
        "dimensions are supported",
        lambda b: b.aiGraphcore.reverse([x(b, 2, 3)], [-1]),
    ),
    ("Strides invalid. 0 stride at index 1", lambda b: b.aiGraphcore.subsample([x(b, 2, 3)], [1, 0])),
]
#: (text, build) of models that the Builder refuses immediately.
OF_THE_BUILDER: list[tuple[str, Build]] = [
    ("BatchNormalization has an invalid number of outputs 7. Must be between 0..5", lambda b: _outputs(b, 7)),
    (
        "Unknown tensor 'zzz' (valid tensors are input, init_input).",
        lambda b: b.aiOnnx.sum([x(b, 2), w(b, 2), "zzz"]),
    ),
    (
        "kernel_shape, [2 2], does not match inferred shape from weight input 'input/1', [3 3]",
        lambda b: b.aiOnnx.conv([x(b, 1, 1, 5, 5), x(b, 1, 1, 3, 3)], kernel_shape=[2, 2]),
    ),
    (
        "Window parameter values combine to give invalid spatial output shape: [0 0]",
        lambda b: b.aiOnnx.conv([x(b, 1, 1, 2, 2), x(b, 1, 1, 3, 3)]),
    ),
    (
        "Padding vector (length 2) does not have 2 values for each spatial dimension 2",
        lambda b: b.aiOnnx.averagepool([x(b, 1, 1, 5, 5)], [2, 2], pads=[1, 1]),
    ),
    (
        "Length of strides vector 1 != number of spatial dimensions 2",
        lambda b: b.aiOnnx.conv([x(b, 1, 1, 5, 5), x(b, 1, 1, 3, 3)], strides=[1]),
    ),
    ("For CallOp 'c', number of inputs (2) does not match that of the callee subgraph (1)", lambda b: _call(b, 2, 1)),
    (
        "For CallOp 'c', number of outputs (2) does not match that of the callee subgraph (1)",
        lambda b: _call(b, 1, 2),
    ),
]


def _outputs(b: popart.Builder, count: int) -> str:
    return str(b.aiOnnx.batchnormalization([x(b, 1, 2, 3), *[w(b, 2) for _ in range(4)]], count)[0])


def _call(b: popart.Builder, inputs: int, outputs: int) -> str:
    body = b.createSubgraphBuilder()
    body.addOutputTensor(body.aiOnnx.relu([body.addInputTensor("FLOAT", [2])]))
    return str(b.aiGraphcore.call([x(b, 2)] * inputs, outputs, body, "c")[0])


@pytest.mark.parametrize(("text", "build"), OF_A_SESSION)
def test_sessions_refuse(text: str, build: Build) -> None:
    with pytest.raises(popart.popart_exception) as error:
        session_of(build)
    assert error.value.args[0] == text


@pytest.mark.parametrize(("text", "build"), OF_THE_BUILDER)
def test_the_builder_refuses(text: str, build: Build) -> None:
    with pytest.raises(popart.popart_exception) as error:
        build(popart.Builder())
    assert error.value.args[0] == text


def test_clip_needs_constant_limits() -> None:
    with pytest.raises(popart.popart_exception, match=r"Input 'max' \(input/1\) has no data\.$"):
        session_of(lambda b: b.aiOnnx.clip([x(b, 4), "", x(b)]), opset=11)


def test_models_of_other_programs_run_without_these_limits() -> None:
    session_of(lambda b: b.aiOnnx.clip([x(b, 4), "", x(b)]), opset=11, limits=False)
    session_of(recurrent("lstm", 4, clip=1.0), limits=False)


def test_small_integers_are_streamed_and_cast_but_not_added() -> None:
    session_of(lambda b: b.aiOnnx.cast([x(b, 2, t="INT8")], "FLOAT"))
    with pytest.raises(popart.poplar_exception, match=r"INT8"):
        session_of(lambda b: b.aiOnnx.add([x(b, 2, t="INT8"), x(b, 2, t="INT8")]))


def test_a_model_with_nothing_to_compute_is_refused() -> None:
    def build(b: popart.Builder) -> str:
        b.aiOnnx.relu([x(b, 2)])
        return "input"

    with pytest.raises(popart.popart_exception, match=r"^All operations in the main graph were pruned, nothing to"):
        session_of(build)


def test_a_gradient_without_a_path_to_the_loss_is_refused_as_an_anchor() -> None:
    with pytest.raises(popart.popart_exception) as error:
        session_of(lambda b: b.aiOnnx.relu([x(b, 2)]), anchors=["Gradient___Relu:0"])
    start = "Anchor tensor `Gradient___Relu:0' not in Ir Tensors. \nInterestingly, `Relu:0' IS in tensors. "
    assert error.value.args[0].startswith(start)


def exponential(b: popart.Builder) -> str:
    return str(b.aiOnnx.exp([b.aiOnnx.mul([x(b, 2), w(b, 2)])]))


def test_automatic_and_manual_recomputation_do_not_mix() -> None:
    def build(b: popart.Builder) -> str:
        y = b.aiOnnx.exp([b.aiOnnx.mul([x(b, 2), w(b, 2)])])
        b.recomputeOutputInBackwardPass({y})
        return str(y)

    with pytest.raises(popart.popart_exception, match=r"^A mixture of auto and manual recomputation is"):
        session_of(build, training=True, autoRecomputation=popart.RecomputationType.Standard)


def test_more_ipus_than_parts() -> None:
    auto = popart.VirtualGraphMode.Auto
    start = r"^\[AutoVirtualGraph\] Couldn't find enough splits for 8 IPUs\. Only found 3"
    with pytest.raises(popart.popart_exception, match=start):
        session_of(exponential, training=True, ipus=8, virtualGraphMode=auto)


def test_a_frozen_batch_normalisation_is_not_trained() -> None:
    with pytest.raises(popart.popart_exception, match=r"has 1 output\(s\) which means it is in inference"):
        session_of(lambda b: normalised(b, (1, 2, 3, 3)), training=True)


class TestPatterns:
    def test_mandatory_patterns_stay_enabled(self) -> None:
        patterns = popart.Patterns()
        with pytest.raises(popart.popart_exception, match=r"^Pattern 'ExpGradOp' is mandatory and cannot be"):
            patterns.enablePattern("ExpGradOp", False)
        with pytest.raises(popart.popart_exception, match=r"^Unknown pattern Foo$"):
            patterns.enablePattern("Foo", True)
        with pytest.raises(popart.popart_exception, match=r"^Unknown pattern InPlac; did you mean 'InPlace'\?$"):
            patterns.enablePattern("InPlac", True)
        with pytest.raises(popart.popart_exception, match=r"' must be enabled$"):
            session_of(exponential, patterns=popart.Patterns([]))

    def test_without_its_pattern_a_gradient_is_refused(self) -> None:
        patterns = popart.Patterns().enableRuntimeAsserts(False).enablePattern("ExpGradOp", False)
        with pytest.raises(popart.popart_exception) as error:
            session_of(exponential, training=True, patterns=patterns)
        assert error.value.args[0] == (
            "Could not create opx for 'ai.graphcore.ExpGrad:1'. This op should have been removed by pattern ExpGradOp"
        )
        session_of(exponential, patterns=patterns)
