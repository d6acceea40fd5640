"""Hold a file until a line comes: ``holds_file.py remembered|forgotten|mapped|open PATH [COMMAND]``.

A process manager, which COMMAND may name, keeps the names of its files in its memory.
"""

import ctypes
import mmap
import os
import sys

how, path = sys.argv[1:3]
if how in ("mapped", "open"):
    file = os.open(path, os.O_RDWR)
    mapping = mmap.mmap(file, 4096)
    if how == "mapped":
        os.close(file)
else:
    with open("/proc/self/comm", "w") as comm:
        comm.write(sys.argv[3])
    libc = ctypes.CDLL(None)
    libc.strdup.restype = ctypes.c_void_p
    libc.strdup(path.encode()[how == "forgotten" :])
print(flush=True)
input()
