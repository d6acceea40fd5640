"""Launch plan: which instance runs where, with which environment, and the command of each back end."""

from __future__ import annotations

import runpy
import shlex
import subprocess
import sys

import pytest

from popdist_py.environment import Environment
from poprun_py.numa.topology import NumaNode, NumaTopology
from poprun_py.options.parser import parse
from poprun_py.plan.launch_plan import SUPERVISOR_FILE, THREAD_VARIABLES, plan
from poprun_py.site.machine import Machine
from poprun_py.site.mpi_installation import MpiInstallation
from poprun_py.wire.variables import PATH_VARIABLE

MPICH = MpiInstallation("mpich", "/mpich/bin/mpirun", "/mpich/lib/libmpi.so.12")
OPENMPI = MpiInstallation("openmpi", "/ompi/bin/mpirun", "/ompi/lib/libmpi.so.40")


def planned(line: str, *, installation=MPICH, cpus=4, cluster=None, **environ):
    node = NumaNode(0, tuple((cpu,) for cpu in range(cpus)), (0,))
    topology = NumaTopology((node,))
    machine = Machine(cpus=cpus, cwd="/home", python="/venv/bin/python", environ=environ, topology=topology)
    return plan(
        parse(line.split()), machine=machine, installation=installation, executable="/bin/prog", cluster=cluster
    )


@pytest.mark.parametrize(("instances", "replicas"), [(1, 1), (1, 16), (2, 4), (3, 12), (6, 6), (4, 8)])
def test_every_replica_lives_in_one_instance(instances, replicas):
    job = planned(f"--num-instances {instances} --num-replicas {replicas} --ipus-per-replica 2 x")
    assert [replica for instance in job.instances for replica in instance.replicas] == list(range(replicas))
    for index, instance in enumerate(job.instances):
        environment = Environment.from_environ(instance.environment)
        assert environment.num_total_replicas == replicas
        assert environment.num_ipus_per_replica == 2
        assert environment.num_local_replicas == replicas // instances
        assert environment.replica_index_offset == index * replicas // instances
        assert environment.local_instance_index == index
        assert environment.instance_index == index
        assert environment.num_instances == instances


def test_the_example_of_the_poprun_documents():
    """12 replicas, 3 instances, 1 host: instance 2 gets TOTAL 12, LOCAL 4, OFFSET 8, LOCAL_INSTANCE_INDEX 2."""
    environment = planned("--num-instances 3 --num-replicas 12 x").instances[2].environment
    names = ("NUM_TOTAL_REPLICAS", "NUM_LOCAL_REPLICAS", "REPLICA_INDEX_OFFSET", "LOCAL_INSTANCE_INDEX")
    assert [environment[f"POPDIST_{name}"] for name in names] == ["12", "4", "8", "2"]
    assert environment["POPDIST_UNIFORM_REPLICAS_PER_INSTANCE"] == "1"
    assert not {"POPDIST_NUM_INSTANCES", "POPDIST_INSTANCE_INDEX"} & set(environment)


@pytest.mark.parametrize("installation", [MPICH, OPENMPI], ids=["mpich", "openmpi"])
def test_instances_load_the_library_of_the_launcher(installation):
    job = planned("x", installation=installation, MPI4PY_MPIABI="impi")
    assert job.instances[0].environment["MPI4PY_LIBMPI"] == installation.library
    assert job.unset == ("MPI4PY_MPIABI", *job.command.unset)


@pytest.mark.parametrize(
    ("transports", "device"), [(None, "lo"), ("all", "lo"), ("tcp,sm,self", "lo"), ("^cma", "lo"), ("tcp,self", None)]
)
def test_the_mpi_uses_the_loopback_where_it_has_shared_memory(transports, device):
    environ = {"UCX_TLS": transports} if transports else {}
    assert planned("--num-instances 2 x", **environ).instances[1].environment.get("UCX_NET_DEVICES") == device


@pytest.mark.parametrize(("cpus", "instances", "threads"), [(8, 1, "8"), (8, 2, "4"), (8, 3, "2"), (2, 8, "1")])
def test_cpus_are_shared_evenly(cpus, instances, threads):
    environment = planned(f"--num-instances {instances} x", cpus=cpus).instances[-1].environment
    assert {environment[name] for name in THREAD_VARIABLES} == {threads}


def test_threads_that_the_user_has_set_are_kept():
    environment = planned("x", OMP_NUM_THREADS="7").instances[0].environment
    assert "OMP_NUM_THREADS" not in environment
    assert environment["MKL_NUM_THREADS"] == "4"


def test_the_mpich_command():
    command = planned("--num-instances 3 x", installation=MPICH).command
    supervisor = f"/venv/bin/python -I -S {SUPERVISOR_FILE}"
    assert shlex.join(command.argv) == f"/mpich/bin/mpirun -hosts localhost -launcher fork -n 3 {supervisor}"
    assert command.environment == {"HWLOC_XMLFILE": ""}
    assert command.unset == ("HWLOC_XMLFILE",)
    assert command.rank_variable == "PMI_RANK"


def test_the_open_mpi_command_runs_as_root_and_starts_quickly():
    command = planned("--num-instances 3 x", installation=OPENMPI).command
    assert shlex.join(command.argv).startswith("/ompi/bin/mpirun --bind-to none -n 3 /venv/bin/python -I -S ")
    assert command.environment["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
    assert command.environment["PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert command.environment["OMPI_MCA_btl"] == "^ofi,tcp"
    assert command.environment["OMPI_MCA_mtl"] == "^ofi"
    assert "OMPI_MCA_mpi_yield_when_idle" not in command.environment


def test_open_mpi_is_told_when_instances_share_cores():
    command = planned("--num-instances 5 x", installation=OPENMPI, cpus=4).command
    assert "--oversubscribe" in command.argv
    assert command.environment["OMPI_MCA_mpi_yield_when_idle"] == "1"
    assert "--oversubscribe" not in planned("--num-instances 4 x", installation=OPENMPI, cpus=4).command.argv


def test_tuning_by_the_user_is_kept():
    command = planned("x", installation=OPENMPI, OMPI_MCA_btl="self,tcp").command
    assert "OMPI_MCA_btl" not in command.environment
    assert command.environment["OMPI_MCA_mtl"] == "^ofi"


def test_planning_loads_nothing_that_runs_a_job():
    code = (
        "import sys, poprun_py.plan.launch_plan\n"
        "print(*sorted({'selectors', 'socket', 'hmac', 'msgpack', 'ctypes'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=True)
    assert done.stdout.split() == []


def test_the_supervisor_script_reads_the_path_that_the_launcher_writes():
    constants = runpy.run_path(SUPERVISOR_FILE, run_name="imported")
    assert constants["PATH_VARIABLE"] == PATH_VARIABLE
