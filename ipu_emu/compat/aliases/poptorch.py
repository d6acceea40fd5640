"""poptorch alias: the module that child processes of a compat program import as poptorch."""

from ipu_emu.compat import take_over

take_over(__name__)
