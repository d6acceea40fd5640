"""Names: debug contexts and reserved prefixes."""

from __future__ import annotations

import pytest

from ipu_emu import popart


def test_debug_contexts_are_below_their_debug_info() -> None:
    info = popart.DebugInfo(popart.DebugContext("outer"), "layer")
    assert info.setValue("key", 3)
    assert not info.setValue("key", 4)
    assert info.getId() != popart.DebugInfo("other", "layer").getId()
    assert [str(popart.DebugContext(*arguments)) for arguments in ((), ("a",), (info, "a"), (info,))] == [
        "",
        "a",
        "outer/a",
        "outer",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AcclToReduce", "AcclIntoReduce___"),
        ("AcclFinalOut", "AcclOutOfAcclUpdate___"),
        ("FinalReducedGrad", "FinalReducedGradient___"),
        ("LambR1Sq", "LambR1Sq___"),
        ("LossScaling", "lossScaling_"),
        ("AutomaticLossScale", "AutomaticLossScaleProxy___"),
        ("SeedModifier", "randomSeedModifier___"),
        ("DefaultScaledMomentum1", "scaledMomentum1___default___"),
        ("SpecificAdamBeta1", "adamBeta1___specific___"),
    ],
)
def test_reserved_prefixes(name: str, value: str) -> None:
    assert getattr(popart, f"reserved{name}Prefix")() == value


def test_old_names_of_options_warn(caplog: pytest.LogCaptureFixture) -> None:
    opts = popart.SessionOptions()
    opts.defaultPrefetchBufferingDepth = 3
    assert opts.defaultBufferingDepth == 3
    assert [record.getMessage() for record in caplog.records] == [
        "The session option defaultPrefetchBufferingDepth has been deprecated and will be removed in a future "
        "release. Please use the alias defaultBufferingDepth instead."
    ]
    opts.experimentalSettings.customTransformApplierSettings["Fwd0"] = ["x"]
    assert popart.SessionOptions().experimentalSettings.customTransformApplierSettings == {}
