"""Version: the version of PopART whose API this front end has."""

_VERSION = (3, 4, 0)


def versionString() -> str:
    """The version of PopART whose API this front end has."""
    return ".".join(map(str, _VERSION))


def versionNumber() -> tuple[int, int, int]:
    """The version as major, minor and point number."""
    return _VERSION


def packageHash() -> str:
    """The name of the emulator, where PopART returns a commit."""
    return "ipu_emu"
