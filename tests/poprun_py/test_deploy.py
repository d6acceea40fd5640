"""Files of deploy/: checked against the API of the MPI operator, the format of a Containerfile, and bash."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from poprun_py.options.host_list import Host, from_file
from poprun_py.options.parser import parse

DEPLOY = Path(__file__).parents[2] / "deploy"

#: Fields of kubeflow.org/v2beta1 (mpi-operator, pkg/apis/kubeflow/v2beta1/types.go).
SPEC = {
    "launcherCreationPolicy",
    "mpiImplementation",
    "mpiReplicaSpecs",
    "runLauncherAsWorker",
    "runPolicy",
    "slotsPerWorker",
    "sshAuthMountPath",
}
RUN_POLICY = {
    "activeDeadlineSeconds",
    "backoffLimit",
    "cleanPodPolicy",
    "managedBy",
    "schedulingPolicy",
    "suspend",
    "ttlSecondsAfterFinished",
}
REPLICA = {"replicas", "restartPolicy", "template"}
IMPLEMENTATIONS = {"OpenMPI", "Intel", "MPICH"}
INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "LABEL", "RUN", "USER", "WORKDIR"}


@pytest.fixture(scope="module")
def job():
    return yaml.safe_load((DEPLOY / "mpijob.yaml").read_text())


def test_the_manifest_has_the_fields_of_an_mpijob_and_no_others(job):
    assert set(job) == {"apiVersion", "kind", "metadata", "spec"}
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = job["spec"]
    assert set(spec) <= SPEC
    assert spec["mpiImplementation"] in IMPLEMENTATIONS
    assert spec["launcherCreationPolicy"] in {"AtStartup", "WaitForWorkersReady"}
    assert set(spec["runPolicy"]) <= RUN_POLICY
    assert spec["runPolicy"]["cleanPodPolicy"] in {"None", "Running", "All"}
    assert set(spec["mpiReplicaSpecs"]) == {"Launcher", "Worker"}
    assert spec["mpiReplicaSpecs"]["Launcher"]["replicas"] == 1
    for replica in spec["mpiReplicaSpecs"].values():
        assert set(replica) <= REPLICA
        assert replica["restartPolicy"] in {"Never", "OnFailure", "Always", "ExitCode"}
        for container in replica["template"]["spec"]["containers"]:
            assert {"name", "image", "command", "resources"} == set(container)
            assert set(container["resources"]) <= {"requests", "limits"}


def test_the_launchers_command_fits_the_workers(job, tmp_path):
    """The operator writes a line per worker to /etc/mpi/hostfile: ``name.job.namespace.svc:slots`` for MPICH."""
    replicas, slots = job["spec"]["mpiReplicaSpecs"], job["spec"]["slotsPerWorker"]
    workers = replicas["Worker"]["replicas"]
    launcher, *words = replicas["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert launcher == "poprun-py"
    options = parse(words)
    assert options.host_file == "/etc/mpi/hostfile"
    assert options.num_instances == workers * slots
    for form in ("{}:{}\n", "{} slots={}\n"):  # of MPICH, of Open MPI
        names = [f"digits-worker-{number}.digits.default.svc" for number in range(workers)]
        (tmp_path / "hostfile").write_text("".join(form.format(name, slots) for name in names))
        assert from_file(str(tmp_path / "hostfile"), source="") == tuple(Host(name, slots) for name in names)


def test_the_containerfile_has_known_instructions_and_copies_what_exists(job):
    text = (DEPLOY / "Containerfile").read_text()
    lines = [line for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip() and not line.startswith("#")]
    instructions = [line.split(maxsplit=1) for line in lines]
    assert instructions[0][0] == "FROM"
    assert {word for word, _ in instructions} <= INSTRUCTIONS
    for word, rest in instructions:
        for source in rest.split()[:-1] if word == "COPY" else []:
            assert (DEPLOY.parent / source).exists(), source
    server = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"]
    assert instructions[-1] == ["CMD", str(server).replace("'", '"')]


def test_the_shell_commands_of_the_containerfile_parse():
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text())
    for command in re.findall(r"^RUN (.*)$", text, re.MULTILINE):
        subprocess.run(["bash", "-n", "-c", command], check=True)


def test_the_batch_script_parses_and_asks_for_what_it_uses():
    script = DEPLOY / "job.sbatch"
    subprocess.run(["bash", "-n", str(script)], check=True)
    options = re.findall(r"^#SBATCH --([a-z-]+)=", script.read_text(), re.MULTILINE)
    assert {"nodes", "ntasks-per-node", "time"} <= set(options)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(script)], check=True)


def test_the_batch_script_starts_two_instances_per_host(tmp_path):
    """With a stand-in for poprun-py that prints its arguments."""
    (tmp_path / "poprun-py").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "poprun-py").chmod(0o755)
    environ = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_JOB_NUM_NODES": "4",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_JOB_ID": "7",
    }
    done = subprocess.run(
        ["bash", str(DEPLOY / "job.sbatch"), "prog", "a b"], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "-v --num-instances 8 --num-replicas 16 --log-dir logs-7 prog a b\n"
    options = parse(done.stdout.split())
    assert (options.num_instances, options.num_replicas, options.log_dir) == (8, 16, "logs-7")
