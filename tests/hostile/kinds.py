"""Kinds: the table of all kinds of hostile trials."""

from __future__ import annotations

from tests.hostile.kind import Kind

__all__ = ["KINDS"]

_LAUNCHER = "inputs.launcher_inputs"
_LIBRARY = "inputs.library_inputs"
_MPIS = {"mpich": "MPICH", "openmpi": "Open MPI"}
_KILLS = "jobs.kills"
_SURVIVORS = "jobs.survivors"
_PLACES = "jobs.surroundings"


def _input(name: str, about: str, source: str) -> Kind:
    return Kind(name, about, source, share=0.5, limit=60.0)


KINDS = (
    *(
        Kind(f"kills-{mpi}", f"deaths in jobs with {words}", f"{_KILLS}:kills_on_one_host", mpi, share=6, limit=240)
        for mpi, words in _MPIS.items()
    ),
    *(
        Kind(f"kills-2-hosts-{mpi}", "the same on 2 hosts", f"{_KILLS}:kills_on_two_hosts", mpi, share=3, limit=240)
        for mpi in _MPIS
    ),
    *(
        Kind(
            f"survivors-{mpi}", "peers that outlive a failure", f"{_SURVIVORS}:survivors_on_one_host", mpi, limit=240
        )
        for mpi in _MPIS
    ),
    *(
        Kind(
            f"survivors-2-hosts-{mpi}", "the same on 2 hosts", f"{_SURVIVORS}:survivors_on_two_hosts", mpi, limit=240
        )
        for mpi in _MPIS
    ),
    *(
        Kind(
            f"strangers-{mpi}",
            f"strangers at all ports of {words}",
            "jobs.strangers:strangers",
            mpi,
            share=2,
            limit=240,
        )
        for mpi, words in _MPIS.items()
    ),
    *(
        Kind(f"two-jobs-{mpi}", "a job beside another, seen or not", "jobs.company:two_jobs", mpi, share=2, limit=240)
        for mpi in _MPIS
    ),
    Kind("scarce-disk", "tiny and full disks", f"{_PLACES}:scarce_disk", limit=240),
    Kind("scarce-shared-memory", "a tiny and full /dev/shm", f"{_PLACES}:scarce_shared_memory", limit=240),
    Kind("scarce-descriptors", "few open files", f"{_PLACES}:scarce_descriptors", limit=240),
    Kind("scarce-memory", "a limit of memory", f"{_PLACES}:scarce_memory", limit=240),
    Kind("homes", "no HOME, odd ones, odd locales", f"{_PLACES}:homes", limit=240),
    Kind("users", "another user than root", f"{_PLACES}:users", limit=240),
    _input("command-lines", "command lines of poprun-py", f"{_LAUNCHER}:command_lines"),
    _input("config-files", "files of --import-config", f"{_LAUNCHER}:config_files"),
    _input("host-files", "files of --hostfile", f"{_LAUNCHER}:host_files"),
    _input("environments", "variables that poprun-py reads", f"{_LAUNCHER}:environments"),
    _input("partition-files", "files of V-IPU partitions", f"{_LAUNCHER}:partition_files"),
    _input("frames", "bytes on the channel between launcher and supervisors", "inputs.frames:frames"),
    _input("library-environments", "variables that the libraries read", f"{_LIBRARY}:library_environments"),
    _input("ipu-emu", "command lines of ipu-emu", f"{_LIBRARY}:emulator_commands"),
    _input("models", "ONNX models", f"{_LIBRARY}:models"),
    _input("external-data", "places of the data of ONNX models", f"{_LIBRARY}:external_data"),
    _input("executables", "compiled executables", f"{_LIBRARY}:executables"),
    _input("checkpoints", "folders of checkpoints", f"{_LIBRARY}:checkpoints"),
    _input("poptorch-files", "files of poptorch.save", "inputs.poptorch_files:poptorch_files"),
    _input("safetensors", "safetensors files", f"{_LIBRARY}:safetensors_files"),
    _input("sample-files", ".npy, .npz, Arrow and Parquet files", f"{_LIBRARY}:sample_files"),
)
