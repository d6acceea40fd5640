"""Version: the version of PopART that this face mirrors."""

__all__ = ["packageHash", "versionString"]


def versionString() -> str:
    """The version of PopART whose interface this face has."""
    return "3.4.0"


def packageHash() -> str:
    """The name of the emulator, where PopART returns a commit."""
    return "ipu_emu"
