"""Version: which PopART this face is like."""

__all__ = ["packageHash", "versionString"]


def versionString() -> str:
    """The version of PopART whose interface this face has."""
    return "3.4.0"


def packageHash() -> str:
    """PopART's is a commit; the emulator has a name."""
    return "ipu_emu"
