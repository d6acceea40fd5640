"""Inventory: each option of poprun-py and variable that it reads or sets has an effect, or is said to have none.

The rows are compared with the tables of the code, so that an option or a variable without a row fails.
"""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import poprun_py
from popdist_py import environment
from poprun_py.cli import main
from poprun_py.options.option_table import OPTIONS
from poprun_py.options.parser import parse
from poprun_py.plan.launch_plan import LOCAL_VARIABLE_PREFIXES, LaunchPlan, plan
from poprun_py.plan.pod_environment import with_pod_environment
from poprun_py.site.cluster import Cluster
from poprun_py.site.machine import Machine
from poprun_py.site.mpi_installation import MpiInstallation
from tests.helpers.inventory_page import assert_counts

ROOT = Path(__file__).parents[3]

#: Options whose effect is seen in the plan: what to give.
PLANNED = {
    "num-instances": "--num-instances 2",
    "num-replicas": "--num-replicas 2",
    "ipus-per-replica": "--ipus-per-replica 2",
    "num-ilds": "--num-replicas 2 --num-ilds 2",
    "print-topology": "--print-topology yes",
    "process-placement": "--process-placement disabled",
    "numa-aware": "--numa-aware no",
    "backend": "--backend inprocess --num-instances 2",
    "mpi-global-args": "--mpi-global-args='-x NAME=1'",
    "mpi-local-args": "--mpi-local-args='-x NAME=1'",
    "instance-mpi-local-args": "--instance-mpi-local-args='0:-x NAME=1'",
    "verbose": "-v -v",
    "vv": "-vv",
    "executable-cache-path": "--executable-cache-path cache",
    "offline-mode": "--offline-mode yes",
    "sync-type": "--sync-type ST_POD_NATIVE_DEFAULT",
    "trace": "--trace folder",
    "format": "--format json",
    "vipu-partition": "--vipu-partition p --update-partition yes",
}

#: Options that have no effect: what to give, so that a note with the name of the option is printed.
SAID = {name: f"--{name} yes" for name in ("synchronise-python-venv", "synchronise-poplar-sdk", "distribute-ssh-key")}

_OUTER = "end_to_end/test_jobs_that_succeed.py::test_an_outer_process_manager_does_not_confuse_ours"

#: All other options, and variables: the test that sees the effect, or the refusal of a value.
SHOWN = {
    "host": "site/test_cluster.py::test_the_mpich_command_for_several_hosts",
    "hostfile": "options/test_option_documents.py::test_the_suggested_options_work",
    "host-subnet": "site/test_cluster.py::test_a_subnet_is_passed_to_both_mpis",
    "mpi": "site/test_mpi_installation.py::test_the_order_is_asked_environment_path_index",
    "allow-run-as-root": "plan/test_launch_plan.py::test_the_open_mpi_command_runs_as_root_and_starts_quickly",
    "only-output-from-instance": "end_to_end/test_jobs_that_succeed.py::test_only_one_instance_is_shown",
    "log-dir": "output/test_instance_logs.py::test_each_stream_has_a_file_also_of_instances_that_are_not_shown",
    "progress": "output/test_progress_table.py::test_elsewhere_nothing_is_drawn",
    "grace": "end_to_end/test_jobs_that_fail.py::test_a_second_ctrl_c_ends_it_at_once",
    "timeout": "end_to_end/test_jobs_that_fail.py::test_a_time_limit",
    "max-restarts": "job/test_restarts.py::test_a_job_that_fails_starts_again_until_it_succeeds",
    "vipu-allocation": "vipu/test_partition.py::test_cluster_is_the_older_name_of_allocation",
    "update-partition": "vipu/test_partition.py::test_a_partition_that_is_too_small_is_recreated_only_on_request",
    "reset-partition": "plan/test_plan_report.py::test_a_dry_run_leaves_no_trace",
    "remove-partition": "vipu/test_partition.py::test_instances_get_the_variables_of_their_partition",
    "vipu-partition-attempts": "options/test_validation.py::test_exact_names_win_over_longer_ones",
    "vipu-server-host": "vipu/test_partition.py::test_the_environment_stands_in_for_options",
    "vipu-server-port": "vipu/test_partition.py::test_the_environment_stands_in_for_options",
    "vipu-server-timeout": "vipu/test_partition.py::test_the_environment_stands_in_for_options",
    "import-config": "options/test_config_file.py::test_written_options_are_read_back_unchanged",
    "export-config": "options/test_config_file.py::test_a_missing_folder_is_reported",
    "overwrite-config": "options/test_config_file.py::test_a_file_is_overwritten_only_when_that_is_asked",
    "dry-run": "cli/test_cli.py::test_a_dry_run_prints_the_plan_and_starts_nothing",
    "version": "cli/test_cli.py::test_version",
    "version-format": "cli/test_cli.py::test_the_full_version_names_all_that_is_built_upon",
    "completion": "cli/test_completion.py::test_the_script_is_printed",
    "help": "cli/test_cli.py::test_help_describes_every_option",
    "COLORTERM": "output/test_tag_colors.py::test_the_terminal_and_no_color_decide",
    "GLOO_SOCKET_IFNAME": "end_to_end/test_several_hosts.py::test_a_subnet_is_used_by_its_name_on_each_host",
    "HYDRA_LAUNCHER_EXEC": "site/test_cluster.py::test_the_users_launcher_for_other_hosts_is_kept",
    "IPUOF_LOG_LEVEL": "options/test_inventory.py::test_variables_of_the_v_ipu",
    "IPUOF_VIPU_API_GCD_ID": "vipu/test_partition.py::test_instances_get_the_variables_of_their_partition",
    "IPUOF_VIPU_API_HOST": "vipu/test_partition.py::test_the_environment_stands_in_for_options",
    "IPUOF_VIPU_API_PARTITION_ID": "vipu/test_partition.py::test_the_environment_stands_in_for_options",
    "IPUOF_VIPU_API_PORT": "vipu/test_partition.py::test_the_environment_stands_in_for_options",
    "IPUOF_VIPU_API_TIMEOUT": "vipu/test_partition.py::test_wrong_variables_are_named_together",
    "IPU_EMU_SYSTEM": "options/test_validation.py::test_the_system_limits_the_job",
    "IPU_EMU_TRACE_LIMIT": "end_to_end/test_trace.py::test_a_trace_that_does_not_fit_is_said_to_be_incomplete",
    "MPI4PY_MPIABI": "plan/test_launch_plan.py::test_instances_load_the_library_of_the_launcher",
    "NO_COLOR": "output/test_tag_colors.py::test_the_terminal_and_no_color_decide",
    "OMPI_COMM_WORLD_RANK": _OUTER,
    "OMPI_MCA_mpi_yield_when_idle": "plan/test_launch_plan.py::test_open_mpi_is_told_when_instances_share_cores",
    "PATH": "site/test_program_path.py::test_a_name_is_looked_up_on_path",
    "PMIX_NAMESPACE": "linux/test_session_folders.py::"
    "test_the_folder_of_a_program_without_a_daemon_is_known_by_its_pid",
    "PMI_RANK": _OUTER,
    "POPDIST_JOB": "options/test_inventory.py::test_variables_of_a_running_instance",
    "POPDIST_REPORT_SOCKET": "options/test_inventory.py::test_variables_of_a_running_instance",
    "POPDIST_RESTART_COUNT": "options/test_inventory.py::test_variables_of_a_running_instance",
    "POPRUN_LOG_LEVEL": "options/test_validation.py::test_the_log_level_of_poprun_counts",
    "POPRUN_PY_CHANNEL": "site/test_cluster.py::test_the_open_mpi_command_for_several_hosts",
    "POPRUN_PY_KEY": "site/test_cluster.py::test_the_open_mpi_command_for_several_hosts",
    "POPRUN_PY_MPI": "site/test_mpi_installation.py::test_the_order_is_asked_environment_path_index",
    "POPRUN_PY_PATH": "site/test_cluster.py::test_the_open_mpi_command_for_several_hosts",
    "POPRUN_PY_RANK_VARIABLE": "site/test_cluster.py::test_the_open_mpi_command_for_several_hosts",
    "POPRUN_PY_SSH": "cli/test_cli.py::test_an_ssh_that_is_not_there_is_refused_before_the_job",
    "SGE_ROOT": "backends/test_openmpi.py::test_guards_are_started_with_the_daemons_on_other_hosts",
    "SLURM_JOBID": "site/test_cluster.py::test_an_allocation_names_the_hosts",
    "SLURM_JOB_ID": "site/test_cluster.py::test_an_allocation_names_the_hosts",
    "SLURM_JOB_NODELIST": "site/test_cluster.py::test_an_allocation_names_the_hosts",
    "SLURM_MPI_TYPE": "site/test_cluster.py::test_the_srun_command",
    "SLURM_NODELIST": "site/test_cluster.py::test_an_allocation_names_the_hosts",
    "SLURM_PROCID": "backends/test_srun.py::test_an_allocation_runs_through_srun",
    "TERM": "output/test_tag_colors.py::test_the_terminal_and_no_color_decide",
    "TMPDIR": "end_to_end/test_several_hosts.py::test_shells_of_other_hosts_read_no_part_of_the_temporary_folder",
    "UCX_TLS": "plan/test_launch_plan.py::test_the_mpi_uses_the_loopback_where_it_has_shared_memory",
    "XDG_STATE_HOME": "vipu/test_partition.py::test_a_folder_that_cannot_be_written_is_reported",
}

#: A name of a variable, unless it is one of os.sysconf; names without an underscore are those read from an environ.
_VARIABLE = re.compile(r"(?!SC_)[A-Z][A-Z0-9]*_[A-Za-z0-9_]*[A-Za-z0-9]")


def planned_variables() -> set[str]:
    """The variables that plans for either MPI set, on this host and on others."""
    names = set[str]()
    options = parse(
        ["-v", "--num-instances=2", "--offline-mode=yes", "--trace=t", "--executable-cache-path=c", "prog"]
    )
    machine = Machine(cpus=1, environ={})
    for kind in ("mpich", "openmpi"):
        for cluster in (Cluster(), Cluster(hosts=("h0", "h1"), network="10.0.0.0/24")):
            installation = MpiInstallation(kind, f"/{kind}/bin/mpirun", library="/lib.so")
            launch_plan = plan(options, machine=machine, installation=installation, executable="/p", cluster=cluster)
            launch_plan = with_pod_environment(launch_plan, options, environ={}, request=None, assignment=None)
            names |= _all_variables(launch_plan)
    return names


def _all_variables(launch_plan: LaunchPlan) -> set[str]:
    command = launch_plan.command
    names = {*command.environment, *command.folder_variables, *command.shared_variables, *launch_plan.threads}
    return names.union(*(instance.environment for instance in launch_plan.instances))


def variables_in_the_code() -> set[str]:
    """Names of variables among the texts of the launcher, and those that it shares with popdist_py."""
    texts, exported = set(environment.NAMES.values()), set[str]()
    for file in Path(poprun_py.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            texts.update(_variables_at(node))
            if isinstance(node, ast.ImportFrom) and node.module == "popdist_py.environment":
                texts |= {value for name in node.names if isinstance(value := getattr(environment, name.name), str)}
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                exported |= set(ast.literal_eval(node.value))
    return texts - exported - set(LOCAL_VARIABLE_PREFIXES)


def _variables_at(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Constant) and _VARIABLE.fullmatch(str(node.value)):
        return [str(node.value)]
    if isinstance(node, ast.Call) and "environ" in ast.unparse(node.func) and node.args:
        names = node.args[:1]
    elif isinstance(node, ast.Subscript) and "environ" in ast.unparse(node.value):
        names = [node.slice]
    else:
        return []
    return [name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)]


def test_every_option_has_a_row():
    rows = [*PLANNED, *SAID, *(name for name in SHOWN if name == name.lower())]
    assert sorted(rows) == sorted(option.name for option in OPTIONS)


def test_every_variable_has_a_row():
    rows = planned_variables() | {name for name in SHOWN if name == name.upper() or "_MCA_" in name}
    assert variables_in_the_code() - rows == set()
    assert {name for name in SHOWN if name != name.lower()} - variables_in_the_code() == set()


@pytest.mark.parametrize("words", PLANNED.values(), ids=PLANNED)
def test_an_option_that_changes_the_plan(words, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    plans = []
    for options in ([], shlex.split(words)):
        main(["--dry-run", *options, "true"])
        plans.append("".join(capfd.readouterr()))
    assert plans[0] != plans[1]


@pytest.mark.parametrize("words", SAID.values(), ids=SAID)
def test_an_option_without_effect_is_said_to_have_none(words, capfd):
    assert main(["--dry-run", *words.split(), "true"]) == 0
    out, _ = capfd.readouterr()
    assert f"note       {words.split()[0]} has no effect: " in out


@pytest.mark.parametrize("shown", sorted(set(SHOWN.values())))
def test_a_row_names_a_test(shown):
    file, _, name = shown.partition("::")
    assert f"def {name}(" in (ROOT / "tests/poprun_py" / file).read_text()


def test_variables_of_the_v_ipu(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for level, shown in (("", "WARN"), ("DEBUG", "")):
        monkeypatch.setenv("IPUOF_LOG_LEVEL", level) if level else monkeypatch.delenv("IPUOF_LOG_LEVEL", False)
        assert main(["--dry-run", *PLANNED["vipu-partition"].split(), "true"]) == 0
        assert ("IPUOF_LOG_LEVEL=WARN" in capfd.readouterr().out) == bool(shown)


def test_variables_of_a_running_instance():
    command = [str(Path(sys.executable).parent / "poprun-py"), "printenv"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True)
    variables = dict(line.partition(":")[2].split("=", 1) for line in done.stdout.splitlines() if "POPDIST" in line)
    assert variables["POPDIST_RESTART_COUNT"] == "0"
    assert int(variables["POPDIST_JOB"]) > 0
    assert re.fullmatch(r"\d+:\d+", variables["POPDIST_REPORT_SOCKET"])


def test_the_counts_on_the_page():
    page = (ROOT / "docs/reference/environment.md").read_text()
    options, variables = len(OPTIONS) - len(SAID), len(variables_in_the_code())
    assert f"{options} options of `poprun-py` and {variables} variables have an effect" in page
    assert f"{len(SAID)} options have none" in page
    assert_counts("options and variables of `poprun-py`", options + variables, 0, len(SAID))
