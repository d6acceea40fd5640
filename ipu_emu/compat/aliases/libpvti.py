"""libpvti alias: the module that child processes of a compat program import as libpvti."""

from ipu_emu.compat import take_over

take_over(__name__)
