"""Run a module as a command; Ctrl-C arrives when it imports another: interrupted_import.py MODULE IMPORTED."""

import runpy
import sys

module, imported = sys.argv[1:]


class Interrupted:
    """A finder of modules that is interrupted."""

    def find_spec(self, name, *rest):
        if name == imported:
            raise KeyboardInterrupt


sys.meta_path.insert(0, Interrupted())
runpy.run_module(module, run_name="__main__")
