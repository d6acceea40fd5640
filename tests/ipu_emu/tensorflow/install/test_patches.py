"""Patches: the table lists all changes of TensorFlow, each with a reason, and all are undone."""

from typing import Any

import pytest


def test_every_patch_is_in_place_and_is_undone(tensorflow: Any) -> None:
    from ipu_emu.tensorflow.install import patches
    from ipu_emu.tensorflow.install.keras_patches import KERAS_PATCHES

    assert patches.applied()
    table = (*patches.PATCHES, *KERAS_PATCHES)
    places = [patch.owner() for patch in table]
    replaced = [getattr(*place) for place in places]
    patches.undo()
    try:
        originals = [getattr(*place, None) for place in places]
        assert all(replacement is not other for replacement, other in zip(replaced, originals, strict=True))
        assert not any(getattr(original, "__module__", "").startswith("ipu_emu") for original in originals)
    finally:
        patches.apply(KERAS_PATCHES)
    assert all(patch.why for patch in table)
    assert len({patch.target for patch in table}) == len(table)


def test_a_face_ends_with_its_finder_and_restores_tensorflow(tensorflow: Any) -> None:
    from ipu_emu.errors import EmulatorError
    from ipu_emu.tensorflow.install import finder, patches
    from ipu_emu.tensorflow.install.keras_patches import KERAS_PATCHES
    from ipu_emu.tensorflow.run import configured_system
    from ipu_emu.tensorflow.trace.frontend_state import frontend_state

    before = frontend_state()
    configured_system.configure(configured_system.ConfiguredSystem((4,)))
    finder.uninstall()
    try:
        with pytest.raises(EmulatorError, match=r"import ipu_emu\.tensorflow\.install first"):
            frontend_state()
        assert before.replaced == []
    finally:
        finder.install()
        patches.apply(KERAS_PATCHES)
    assert configured_system.configured() == configured_system.ConfiguredSystem()
    assert frontend_state() is not before
