"""popart alias: what a process that was started by a program of compat imports as popart."""

from ipu_emu.compat import take_over

take_over(__name__)
