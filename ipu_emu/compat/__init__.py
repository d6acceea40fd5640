"""compat: run a program for PopART, PopTorch, TensorFlow or PopDist unchanged: ``python -m ipu_emu.compat x.py``.

Only imports are redirected:

    popart                  ipu_emu.popart
    poptorch                ipu_emu.poptorch (needs PyTorch)
    popdist                 popdist_py
    popdist.popart          popdist_py.popart
    popdist.poptorch        ipu_emu.poptorch.popdist_options
    popdist.tensorflow      ipu_emu.tensorflow.api.distributed.popdist_tensorflow
    tensorflow.python.ipu   ipu_emu.tensorflow.api
    libpvti                 ipu_emu.trace.libpvti

The redirection takes precedence over installed packages of these names. Importing other parts of Graphcore's SDK
(popxl, poplar, poptorch_geometric) fails with a message that says so. With ``--tf1`` before the program,
``import tensorflow`` gives the API of TensorFlow 1.

Python processes that the program starts, such as the workers of a data loader, find the folder ``aliases`` in their
path: in the ``sys.path`` that multiprocessing passes on, or in PYTHONPATH.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER
from io import open_code
from pathlib import Path
from pkgutil import get_importer
from types import ModuleType

from popdist_py.messages.short_message import short_message

__all__ = ["ALIASES", "install", "main", "take_over"]

#: The names that a program imports, and the modules that replace them.
ALIASES = {
    "popart": "ipu_emu.popart",
    "popdist": "popdist_py",
    "poptorch": "ipu_emu.poptorch",
    "libpvti": "ipu_emu.trace.libpvti",
}
#: Single modules outside the replacement of their package.
_MOVED = {
    "popdist.poptorch": "ipu_emu.poptorch.popdist_options",
    "popdist.tensorflow": "tensorflow.python.ipu.distributed.popdist_tensorflow",
}
_ABSENT = ("popxl", "poplar", "poptorch_geometric")


class _Alias(Loader):
    """Loads a module that exists under another name."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._own_spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._target)
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has been executed already, under its own name."""
        module.__spec__ = self._own_spec


class _Finder(MetaPathFinder):
    """Finds the names in ALIASES and all of their submodules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _ABSENT:
            raise ModuleNotFoundError(
                f"{fullname} is not part of the emulator, which has {', '.join(ALIASES)} and tensorflow.python.ipu",
                name=fullname,
            )
        if fullname in _MOVED:
            return ModuleSpec(fullname, _Alias(_MOVED[fullname]))
        root, _, rest = fullname.partition(".")
        if root not in ALIASES:
            return None
        return ModuleSpec(fullname, _Alias(ALIASES[root] + (f".{rest}" if rest else "")), is_package=not rest)


def install() -> None:
    """Redirect later imports of this process; a second call has no effect."""
    from ipu_emu.tensorflow.install import (
        finder,  # takes 0.7 s, so it is imported here, where __main__ handles Ctrl-C
    )

    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    finder.install()


def take_over(name: str) -> None:
    """Redirect imports, and replace the alias module ``name``, which is being imported, by its target."""
    if name in ALIASES:
        install()
        del sys.modules[name]
        import_module(name)


def _reach_children() -> None:
    folder, inherited = str(Path(__file__).parent / "aliases"), os.environ.get("PYTHONPATH")
    sys.path.insert(1, folder)
    os.environ["PYTHONPATH"] = folder if not inherited else folder + os.pathsep + inherited


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program that the command line names, as if Python had been started with it."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print("usage: python -m ipu_emu.compat [--tf1] program.py [arguments]\n\n" + (__doc__ or "").split("\n\n")[0])
        return 0 if words else 2
    install()
    _reach_children()
    if words[0] == "--tf1":
        from ipu_emu.tensorflow.install.versions import first_version

        first_version()
        words = words[1:]
        if not words:
            print("--tf1 needs a program; name the program to run", file=sys.stderr)
            return 2
    if words[0] == "-m" and len(words) > 1:
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return 0
    program = Path(words[0])
    if not os.path.isfile(program):  # unlike Path.is_file, accepts names of any length
        print(f"{short_message(str(program))}: there is no such file; name the program to run", file=sys.stderr)
        return 2
    if fault := _fault(program):
        print(fault, file=sys.stderr)
        return 1
    sys.argv = words
    sys.path[0] = str(program.resolve().parent)
    runpy.run_path(str(program), run_name="__main__")
    return 0


def _fault(program: Path) -> str:
    """Return Python's message about a file that is not a program; '' if it is one."""
    try:
        with open_code(str(program)) as stream:
            source = stream.read()
        if not source.startswith(MAGIC_NUMBER) and get_importer(str(program)) is None:  # neither .pyc nor an archive
            compile(source, str(program), "exec", dont_inherit=True)
    except OSError as error:
        return f"{program}: the program cannot be read: {error.strerror}"
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return "".join(traceback.format_exception_only(error)).rstrip()
    return ""
