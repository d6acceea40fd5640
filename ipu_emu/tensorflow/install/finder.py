"""Finder: finds modules of the emulator by their names in TensorFlow for the IPU.

    tensorflow.python.ipu          ipu_emu.tensorflow.api
    tensorflow.python.ipu.ops.x    ipu_emu.tensorflow.api.ops.x
    tensorflow.python.ipu.keras    ipu_emu.tensorflow.keras, also as keras.ipu and tensorflow.keras.ipu
    keras, tensorflow.keras        tf_keras: Keras 2, the modules that are tf.keras
    ipu_tensorflow_addons          ipu_emu.tensorflow.addons

Programs run with ``python -m ipu_emu.compat program.py``, or call ``import ipu_emu.tensorflow.install`` first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from operator import attrgetter
from types import ModuleType

from ipu_emu.tensorflow.install.versions import check_keras, check_versions
from ipu_emu.tensorflow.trace.frontend_state import FrontendState

_IPU, _API = "tensorflow.python.ipu", "ipu_emu.tensorflow.api"
_KERAS = "ipu_emu.tensorflow.keras"
_FIRST = "tensorflow.compat.v1"
_OF_KERAS = re.compile(r"tf_keras\.(?:api\._v[12]\.keras\.)?(.+)")
#: The API of Keras by its names in programs. TensorFlow would load it once more by such a name.
_KERAS_APIS = {
    "keras": "tf_keras",
    "tensorflow.keras": "tf_keras.api._v2.keras",
    "tensorflow.compat.v2.keras": "tf_keras.api._v2.keras",
    f"{_FIRST}.keras": "tf_keras.api._v1.keras",
}
#: Packages by their names in programs; a longer name comes before its prefixes.
_PACKAGES = {
    **{f"{name}.ipu": _KERAS for name in (*_KERAS_APIS, *_KERAS_APIS.values())},
    **_KERAS_APIS,
    "ipu_tensorflow_addons": "ipu_emu.tensorflow.addons",
    f"{_IPU}.keras": _KERAS,
    _IPU: _API,
}
#: Unsupported modules of the reference, and what to use instead.
_REFUSED = {
    "serving": "export the model with TensorFlow's own means",
    "embedded_runtime": "run the program in a session",
    "application_compile_op": "run the program in a session",
    "custom_ops": "write the op in terms of TensorFlow's ops",
    "vertex_edsl": "write the op in terms of TensorFlow's ops",
    "autoshard": "place ops with scopes.ipu_shard, or use a pipeline",
    "autoshard_cnn": "place ops with scopes.ipu_shard, or use a pipeline",
    "ops.f8_ops": "use FLOAT16",
    "embedding_ops.HostEmbedding": "keep the table in a variable",
}


class _Alias(Loader):
    """Loads a module that exists under another name."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._own: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._target)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has been executed already, under its own name."""
        module.__spec__ = self._own


class Finder(MetaPathFinder):
    """Finds the names below ``tensorflow.python.ipu`` and ``keras``; ``state`` is what programs set through them."""

    def __init__(self) -> None:
        self.state = FrontendState()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "tensorflow":
            with suppress(ModuleNotFoundError):  # raised by what needs a suitable version
                check_versions()
        if name := _OF_KERAS.match(fullname):
            check_keras(name[1])  # `from keras import ops` looks it up by this name
        package = next((prefix for prefix in _PACKAGES if f"{fullname}.".startswith(f"{prefix}.")), None)
        if package is None or (package in _KERAS_APIS and find_spec("tf_keras") is None):
            return None
        check_versions()
        _prepare()
        rest, target_package = fullname[len(package) + 1 :], _PACKAGES[package]
        if package == "tensorflow.keras" and sys.modules["tensorflow"].__name__ == _FIRST:
            target_package = _KERAS_APIS[f"{_FIRST}.keras"]
        if package in _KERAS_APIS:
            check_keras(rest)
        if package == _IPU and rest in _REFUSED:
            raise ModuleNotFoundError(f"{fullname} is not part of the emulator; {_REFUSED[rest]}", name=fullname)
        module = f"{target_package}.{rest}" if rest else target_package
        if rest and package == _IPU:
            module = _own_name(rest) or module
        spec = find_spec(module)
        if spec is None and package in _KERAS_APIS:
            return None
        if spec is None:
            raise ModuleNotFoundError(
                f"{fullname} is not part of the emulator (see docs/tensorflow.md for what is)", name=fullname
            )
        return ModuleSpec(fullname, _Alias(module), is_package=spec.submodule_search_locations is not None)


def _own_name(path: str) -> str | None:
    """The name of the module that is at ``path`` in the API, whose packages have modules of others as attributes."""
    try:
        module = attrgetter(path)(import_module(_API))
    except AttributeError:
        return None
    return module.__name__ if isinstance(module, ModuleType) and module.__name__.startswith(_API) else None


def _prepare() -> None:
    """Import TensorFlow, and patch it."""
    import_module("tensorflow")  # it imports Keras: this must happen before the import of modules that need both
    from ipu_emu.tensorflow.install import patches
    from ipu_emu.tensorflow.install.keras_patches import KERAS_PATCHES

    patches.apply(KERAS_PATCHES)


def install() -> None:
    """Install the finder; a second call has no effect."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


def uninstall() -> None:
    """Remove the finder, and restore TensorFlow."""
    for finder in [entry for entry in sys.meta_path if isinstance(entry, Finder)]:
        if finder.state.replaced:
            from ipu_emu.tensorflow.install import patches

            patches.undo()
        sys.meta_path.remove(finder)
