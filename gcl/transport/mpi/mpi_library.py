"""MpiLibrary: the functions of the MPI library that mpi4py loaded, called without mpi4py's objects.

Everything that gcl assumes about mpi4py and about the binary interface of an MPI library is in this file:

    functions    mpi4py's extension module is linked to the library, so that the loader finds its functions there
    handles      ``handle`` of an mpi4py object is what C code passes: an int (MPICH) or a pointer (Open MPI)
    arguments    integers and pointers, which may all be passed as 64-bit integers
    sizes        ``MPI._sizeof`` returns the sizes of a request handle and a status

``load`` sends a message from this process to itself in this way, and raises TransportError if it does not arrive.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpi4py
import numpy as np
from mpi4py import MPI

from gcl.core.prepared_call import DONE
from gcl.errors import TransportError
from gcl.transport.mpi.mpi_requests import Library, Pace, new_work, start_and_wait

#: Field of ``MpiLibrary`` -> name in C, number of arguments.
_FUNCTIONS = {
    "isend": ("MPI_Isend", 7),
    "irecv": ("MPI_Irecv", 7),
    "send_init": ("MPI_Send_init", 7),
    "recv_init": ("MPI_Recv_init", 7),
    "request_get_status": ("MPI_Request_get_status", 3),
    "request_free": ("MPI_Request_free", 1),
    "cancel": ("MPI_Cancel", 1),
}
_CHECK_TAG = 1


@dataclass(frozen=True)
class MpiLibrary:
    """Functions of the loaded library; they return 0 (MPI_SUCCESS) or an error class.

    ``isend``, ``irecv``, ``send_init`` and ``recv_init`` take (address, bytes, MPI_BYTE, rank, tag, communicator,
    address of the request). ``addresses`` is what ``mpi_requests`` needs, one word per ``Library``.
    """

    isend: Callable[..., int]
    irecv: Callable[..., int]
    send_init: Callable[..., int]
    recv_init: Callable[..., int]
    request_get_status: Callable[..., int]
    request_free: Callable[..., int]
    cancel: Callable[..., int]
    addresses: np.ndarray
    request_dtype: np.dtype[Any]
    byte: int


def load() -> MpiLibrary:
    """The library that mpi4py loaded, checked."""
    try:
        library = _resolved()
    except (AttributeError, OSError) as error:
        raise _fault(str(error)) from error
    _check(library)
    return library


def _resolved() -> MpiLibrary:
    loaded = ctypes.CDLL(MPI.__file__)
    functions = {}
    for field, (name, arguments) in _FUNCTIONS.items():
        function = functions[field] = loaded[name]
        function.argtypes, function.restype = [ctypes.c_int64] * arguments, ctypes.c_int
    request_bytes, status_bytes = MPI._sizeof(MPI.Request), MPI._sizeof(MPI.Status)
    if request_bytes not in (4, 8):
        raise OSError(f"a request handle has {request_bytes} bytes")
    words = {
        Library.START_ALL: ctypes.cast(loaded.MPI_Startall, ctypes.c_void_p).value or 0,
        Library.TEST_ALL: ctypes.cast(loaded.MPI_Testall, ctypes.c_void_p).value or 0,
        Library.REQUEST_BYTES: request_bytes,
        Library.STATUS_BYTES: status_bytes,
    }
    return MpiLibrary(
        **functions,
        addresses=np.array([words[word] for word in Library], np.int64),
        request_dtype=np.dtype(np.int32 if request_bytes == 4 else np.int64),
        byte=MPI.BYTE.handle,
    )


def _check(library: MpiLibrary) -> None:
    """Send a message from this process to itself."""
    alone = MPI.COMM_SELF.Dup()
    sent, received = np.arange(3, dtype=np.int64), np.zeros(3, np.int64)
    requests, work = np.zeros(2, library.request_dtype), new_work(library.addresses, 2, Pace.of(0))
    for slot, (init, data) in enumerate(((library.recv_init, received), (library.send_init, sent))):
        at = requests[slot:].ctypes.data
        if init(data.ctypes.data, data.nbytes, library.byte, 0, _CHECK_TAG, alone.handle, at):
            raise _fault("MPI creates no persistent request")
    status = start_and_wait(library.addresses, requests.ctypes.data, 2, work)
    if status != DONE or not (sent == received).all():
        raise _fault("a message of this process to itself does not arrive")
    for slot in range(2):
        library.request_free(requests[slot:].ctypes.data)
    alone.Free()


def _fault(why: str) -> TransportError:
    version = MPI.Get_library_version().split("\n")[0].strip("\0 ")
    return TransportError(
        f"compiled code cannot call this MPI ({why}): mpi4py {mpi4py.__version__}, {version}; use an MPI that mpi4py "
        "4.1 was built for, such as the mpich package"
    )
