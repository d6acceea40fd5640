"""Settings without effect: a warning names each of them where it is set."""

import enum
import warnings

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.session.options.settings import Settings


def other(value):
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, enum.Enum):
        return next(member for member in type(value) if member is not value)
    others = {int: 3, float: 0.5, str: "x", list: ["x"], set: {"x"}, dict: {"x": 1}}
    return others[type(value)] if others[type(value)] != value else 4


def names_without_effect(settings, prefix=""):
    """Yield the dotted names, and set each of them."""
    for name in settings.defaults:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield from names_without_effect(value, f"{prefix}{name}.")
        elif name in settings.without_effect:
            setattr(settings, name, other(value))
            yield f"{prefix}{name}"


def session(options=None):
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    y = builder.aiOnnx.identity([x])
    return popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
    )


def said(record):
    return [str(warning.message) for warning in record]


def test_each_session_option_of_popart_is_named():
    options = popart.SessionOptions()
    names = list(names_without_effect(options))
    assert len(names) > 70
    options.gclOptions = {"maximum_reduce_many_buffer_size": 1024, "other": "1"}
    with pytest.warns(UserWarning, match="Session options") as record:
        session(options)
    (text,) = [text for text in said(record) if text.startswith("Session options")]
    listed = text.removeprefix("Session options ").removesuffix(" have no effect on emulated IPUs").split(", ")
    assert sorted(listed) == sorted([*names, "gclOptions['other']"])


def test_defaults_are_not_named():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(popart.SessionOptions())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"debug.instrument": true, "streamingMemory.folder": ""}', "Engine options debug.instrument has no effect"),
        ("{not JSON", "POPLAR_ENGINE_OPTIONS is not a JSON object and is ignored"),
        ("[1]", "POPLAR_ENGINE_OPTIONS is not a JSON object and is ignored"),
        ("{\u201cdebug.x\u201d: 1}", "POPLAR_ENGINE_OPTIONS has curly quotes"),
    ],
)
def test_engine_options_of_the_environment_are_named(text, words, monkeypatch):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)
    with pytest.warns(UserWarning, match=words):
        session()


def test_engine_options_of_a_program_are_named(tmp_path):
    options = popart.SessionOptions()
    options.engineOptions = {"target.workerStackSizeInBytes": 512, "streamingMemory.folder": str(tmp_path)}
    with pytest.warns(UserWarning, match=r"Engine options target\.workerStackSizeInBytes has no effect"):
        session(options)


ANNOTATIONS = {
    "availableMemoryProportion": lambda builder, y: builder.setAvailableMemoryProportion({y}, 0.1),
    "partialsType": lambda builder, y: builder.setPartialsType({y}, "HALF"),
    "enableConvDithering": lambda builder, y: builder.setEnableConvDithering({y}, 1),
    "serializeMatMul": lambda builder, y: builder.setSerializeMatMul({y}, "output_channels", 2),
    "inplace preferences": lambda builder, y: builder.setInplacePreferences({y}, {"ReluInplace": 1.0}),
    "schedulePriority": lambda builder, y: builder.schedulePriority(1.0),
    "outlineAttributes": lambda builder, y: builder.outlineAttributes({"a": "b"}),
}


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_attributes_of_nodes_are_named(name):
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1, 2, 4, 4]))
    w = builder.addInitializedInputTensor(np.ones((2, 2, 1, 1), np.float32))
    y = builder.aiOnnx.conv([x, w])
    with pytest.warns(UserWarning, match=f"The node attribute {name} has no effect"):
        ANNOTATIONS[name](builder, y)
