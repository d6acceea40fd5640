"""Cluster: the hosts of a job, the command that starts it there, and those for several hosts; nothing is started."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from popdist_py.environment import Environment
from poprun_py.backends import mpich, openmpi
from poprun_py.errors import UsageError
from poprun_py.numa.topology import NumaNode, NumaTopology
from poprun_py.options.parser import parse
from poprun_py.plan.launch_plan import SUPERVISOR_FILE, plan
from poprun_py.site.cluster import MPI, SLURM, Cluster, find_cluster
from poprun_py.site.machine import Machine
from poprun_py.site.mpi_installation import MpiInstallation
from poprun_py.site.network import Interface, addresses_towards, interface_in, interfaces, subnet_named

MPICH = MpiInstallation("mpich", "/mpich/bin/mpirun", "/mpich/lib/libmpi.so.12")
OPENMPI = MpiInstallation("openmpi", "/ompi/bin/mpirun", "/ompi/lib/libmpi.so.40")
SUPERVISOR = f"/venv/bin/python -I -S {SUPERVISOR_FILE}"


def find(line, **environ):
    return find_cluster(parse(shlex.split(line)), environ=environ, nodename="h0")


def planned(line, *, installation=MPICH, **environ):
    topology = NumaTopology((NumaNode(0, ((0,), (1,)), (0,)), NumaNode(1, ((2,), (3,)), (1,))))
    machine = Machine(4, "/home", "/venv/bin/python", environ=environ, nodename="h0", topology=topology)
    options = parse(shlex.split(line))
    cluster = find_cluster(options, environ=environ, nodename="h0")
    return plan(options, machine=machine, installation=installation, executable="/bin/prog", cluster=cluster)


@pytest.fixture
def slurm(tmp_path):
    """The environment of an allocation of n1 to n4, with an srun on PATH."""
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\n")
    srun.chmod(0o755)
    return {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-4]", "PATH": str(tmp_path)}


@pytest.mark.parametrize("line", ["x", "--host h0 x", "--host localhost x", "--host 127.0.0.1 --num-instances 3 x"])
def test_one_host_that_is_this_one_needs_no_ssh(line):
    assert find(line) == Cluster(nodename="h0")


def test_hosts_are_reached_over_ssh_unless_slurm_has_given_all_of_them(slurm):
    assert find("--host n1,n2 --num-instances 2 x").starter == MPI
    assert find("--host n1,n2 --num-instances 2 x", **slurm).starter == SLURM
    assert find("--host n1,other --num-instances 2 x", **slurm).starter == MPI
    assert find("--host n1,n2 --num-instances 2 --backend mpi x", **slurm).starter == MPI
    assert find("--host n1,n2 --num-instances 2 x", **slurm | {"PATH": ""}).starter == MPI


def test_an_allocation_names_the_hosts(slurm):
    cluster = find("--num-instances 8 x", **slurm)
    assert (cluster.hosts, cluster.starter, cluster.srun) == (
        ("n1", "n2", "n3", "n4"),
        SLURM,
        slurm["PATH"] + "/srun",
    )
    assert find("x", **slurm | {"SLURM_JOB_NODELIST": "h0"}) == Cluster(nodename="h0")
    assert find("--backend slurm x", **slurm | {"SLURM_JOB_NODELIST": "h0"}).starter == SLURM
    old = {"SLURM_JOBID": "7", "SLURM_NODELIST": "n[1-2]"}
    assert find("--num-instances 2 x", **old).hosts == ("n1", "n2")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--host a,b --num-instances 3 x", "3 is not divisible by 2; use --num-instances 2 or 4"),
        ("--host a,b,c x", "there are fewer instances than hosts; use --num-instances 3"),
        ("--host a:1,b:1 --num-instances 4 x", "a has 1 slot, but would get 2 of 4 instances on 2 hosts"),
        ("--host a,b --num-instances 2 --host-subnet nix0 x", "no such interface or subnet; use one of: .*lo"),
        ("--backend slurm x", r"there is no Slurm allocation \(SLURM_JOB_ID is not set; use salloc or sbatch\)"),
    ],
)
def test_values_that_do_not_fit_are_a_usage_error(line, said):
    with pytest.raises(UsageError, match=said):
        find(line)


def test_an_allocation_without_hosts_is_reported(slurm):
    with pytest.raises(UsageError, match=r"SLURM_JOB_NODELIST"):
        find("--backend slurm x", **slurm | {"SLURM_JOB_NODELIST": ""})


def test_slurm_only_starts_on_hosts_of_the_allocation(slurm):
    with pytest.raises(UsageError, match=r"h9.*n1, n2, n3, n4"):
        find("--backend slurm --host n1,h9 --num-instances 2 x", **slurm)
    with pytest.raises(UsageError, match="no srun on PATH"):
        find("--backend slurm --num-instances 4 x", **slurm | {"PATH": ""})
    with pytest.raises(UsageError, match=r"^SLURM_JOB_NODELIST=n\[: .*name the hosts with --host"):
        find("x", **slurm | {"SLURM_JOB_NODELIST": "n["})


@pytest.mark.parametrize("installation", [MPICH, OPENMPI], ids=["mpich", "openmpi"])
def test_instances_fill_the_hosts_in_blocks(installation):
    job = planned("--host a,h0 --num-instances 4 --num-replicas 8 x", installation=installation)
    assert [(instance.host, instance.local_index) for instance in job.instances] == [
        ("a", 0),
        ("a", 1),
        ("h0", 0),
        ("h0", 1),
    ]
    for index, instance in enumerate(job.instances):
        environment = Environment.from_environ(instance.environment)
        assert (environment.local_instance_index, environment.instance_index) == (index % 2, index)
    assert job.remote_hosts == ("a",)
    assert job.instances_per_host == 2


def test_the_placement_is_known_in_advance_on_this_host_only():
    job = planned("--host a,h0 --num-instances 4 x")
    assert [instance.placement and instance.placement.cpus for instance in job.instances] == [
        None,
        None,
        (0, 1),
        (2, 3),
    ]
    assert "OMP_NUM_THREADS" not in job.instances[0].environment
    assert job.instances[2].environment["OMP_NUM_THREADS"] == "2"
    assert job.threads[0] == "OMP_NUM_THREADS"


def test_the_users_environment_goes_to_all_hosts_but_not_what_belongs_to_one():
    job = planned("--host a,b --num-instances 2 x", DATA="/d", SSH_TTY="/dev/pts/1", PMI_RANK="3", HOSTNAME="h0")
    environment = job.instances[1].environment
    assert environment["DATA"] == "/d"
    assert not {"SSH_TTY", "PMI_RANK", "HOSTNAME"} & set(environment)
    assert "DATA" not in planned("x", DATA="/d").instances[0].environment  # inherited


@pytest.mark.parametrize("topology", [{}, {"HWLOC_XMLFILE": "mine.xml"}], ids=["no topology", "the user's topology"])
def test_the_mpich_command_for_several_hosts(topology):
    command = planned("--host a,b --num-instances 4 x", POPRUN_PY_SSH="/my/ssh", **topology).command
    expected = f"/mpich/bin/mpirun -launcher ssh -hosts a,b -ppn 2 -wdir / -n 4 {SUPERVISOR}"
    assert shlex.join(command.argv) == expected
    script = str(Path(mpich.__file__).with_name("hydra_ssh.sh"))
    own = {"HYDRA_LAUNCHER_EXEC": script, "HWLOC_XMLFILE": ""}
    assert command.environment == ({"HYDRA_LAUNCHER_EXEC": "/my/ssh"} if topology else own)


def test_the_users_launcher_for_other_hosts_is_kept():
    command = planned("--host a,b --num-instances 4 x", HYDRA_LAUNCHER_EXEC="/my/ssh").command
    assert command.environment == {"HWLOC_XMLFILE": ""}


def test_the_open_mpi_command_for_several_hosts():
    command = planned("--host a,b --num-instances 4 x", installation=OPENMPI, POPRUN_PY_SSH="/my/ssh").command
    assert shlex.join(command.argv) == (
        "/ompi/bin/mpirun --bind-to none --host a:2,b:2 --map-by slot --wdir / -x POPRUN_PY_CHANNEL -x POPRUN_PY_KEY "
        f"-x POPRUN_PY_PATH -x POPRUN_PY_RANK_VARIABLE -n 4 {SUPERVISOR}"
    )
    script = Path(openmpi.__file__).with_name("prte_ssh.sh")
    assert command.environment["PRTE_MCA_plm_ssh_agent"] == f"{script} /venv/bin/python /my/ssh"


def test_a_subnet_is_passed_to_both_mpis():
    line = "--host a,b --num-instances 2 --host-subnet lo x"
    assert planned(line).command.argv[7:9] == ("-iface", "lo")
    environment = planned(line, installation=OPENMPI).command.environment
    assert environment["PRTE_MCA_oob_tcp_if_include"] == environment["OMPI_MCA_btl_tcp_if_include"] == "127.0.0.0/8"
    assert planned(line).network == "127.0.0.0/8"


@pytest.mark.parametrize(
    ("installation", "pmi", "environment"),
    [(MPICH, "pmi2", {}), (OPENMPI, "pmix", {"OMPI_MCA_btl": "^ofi", "OMPI_MCA_mtl": "^ofi"})],
)
def test_the_srun_command(slurm, installation, pmi, environment):
    command = planned("--num-instances 8 x", installation=installation, **slurm).command
    words = shlex.join(command.argv)
    assert words.startswith(f"{slurm['PATH']}/srun --nodes=4 --ntasks=8 --ntasks-per-node=2 --nodelist=n1,n2,n3,n4 ")
    assert f" --mpi={pmi} " in words
    assert words.endswith(f" {SUPERVISOR}")
    assert command.environment == environment
    assert command.rank_variable == "SLURM_PROCID"
    site = planned("--num-instances 8 x", installation=installation, **slurm, SLURM_MPI_TYPE="cray_shasta").command
    assert "--mpi" not in shlex.join(site.argv)


def test_words_for_mpirun():
    line = "--mpi-global-args='--tag-output --mca oob_tcp_if_include eno1 -x A=1' --mpi-local-args='-x B -x C -q' x"
    job = planned(line, installation=OPENMPI, B="2")
    assert shlex.join(job.command.argv).startswith(
        "/ompi/bin/mpirun --bind-to none --tag-output --mca oob_tcp_if_include eno1 -n 1 -q /venv"
    )
    assert job.notes == ("-x C has no effect: C is not set",)
    mpich = planned(line, B="2")
    assert shlex.join(mpich.command.argv).startswith(
        "/mpich/bin/mpirun -hosts localhost -launcher fork -n 1 -q /venv"
    )
    assert len(mpich.notes) == 2
    assert "--mca oob_tcp_if_include eno1 is an option of Open MPI" in mpich.notes[0]
    for variant in (job, mpich):
        environment = variant.instances[0].environment
        assert (environment["A"], environment["B"], environment.get("C")) == ("1", "2", None)


@pytest.mark.parametrize(
    ("place", "strategy"), [("core", "spreadcore"), ("none", "disabled"), ("socket", "spreadnuma")]
)
@pytest.mark.parametrize("installation", [MPICH, OPENMPI], ids=["mpich", "openmpi"])
def test_binding_is_left_to_the_supervisors(installation, place, strategy):
    job = planned(f"--mpi-global-args='--bind-to {place} -q' x", installation=installation)
    words = shlex.join(job.command.argv)
    assert " -q -n 1" in words
    assert words.count("bind-to") == (installation is OPENMPI)
    assert job.notes == (f"--bind-to {place} is ignored; use --process-placement {strategy} instead",)


def test_words_for_one_instance():
    job = planned("--num-instances 2 --instance-mpi-local-args='1:-x A=B -x OMP_NUM_THREADS=5' x")
    assert [instance.environment.get("A") for instance in job.instances] == [None, "B"]
    with pytest.raises(UsageError, match=r"-x NAME=VALUE.*--wdir"):
        planned("--instance-mpi-local-args='0:--wdir /' x")


def test_a_network_given_to_open_mpi_is_the_subnet_of_the_job():
    assert find("--host a,b --num-instances 2 --mpi-global-args='--mca btl_tcp_if_include lo' x").interface == "lo"


def test_interfaces_and_subnets():
    known = interfaces()
    assert Interface("lo", "127.0.0.1", "127.0.0.0/8") in known
    cards = [Interface("lo", "127.0.0.1", "127.0.0.0/8"), Interface("ib0", "10.1.0.7", "10.1.0.0/16")]
    assert subnet_named("ib0", cards) == cards[1]
    assert subnet_named("10.0.0.0/8", cards) == Interface("ib0", "10.1.0.7", "10.0.0.0/8")
    assert interface_in("10.1.0.0/16", cards) == cards[1]
    assert interface_in("10.2.0.0/16", cards) is None


def test_the_address_to_listen_at_leads_to_the_others():
    outside = [interface.address for interface in interfaces() if interface.name != "lo"]
    assert addresses_towards(["localhost"]) == tuple(outside or ["127.0.0.1"])
    for address in addresses_towards(["10.255.255.254", "no.such.host.invalid"]):
        assert address in [*outside, "127.0.0.1"]
