"""Pod environment: options of the target that the user has set, whatever they are."""

from __future__ import annotations

import json

import pytest

from gcl.literal.literal_path import default_fabric
from ipu_emu.hardware import System
from poprun_py.options.parser import parse
from poprun_py.plan.pod_environment import TARGET_OPTIONS, pod_environment


def target_options(text: str) -> str:
    options = parse(["--num-instances", "2", "--num-replicas", "4", "true"])
    return pod_environment(options, 0, environ={TARGET_OPTIONS: text}, request=None, assignment=None)[TARGET_OPTIONS]


def test_variables_of_the_user_take_precedence():
    ours, theirs = json.loads(target_options("")), {"instanceSize": "7", "mine": "1"}
    assert ours["instanceSize"] == "2"
    assert json.loads(target_options(json.dumps(theirs))) == ours | theirs


@pytest.mark.parametrize("domain", [16, 64])
def test_the_topology_is_that_of_gcl(domain):
    options = parse(["--num-instances", "2", "--num-replicas", str(2 * domain), "--num-ilds", "2", "true"])
    ours = json.loads(pod_environment(options, 0, environ={}, request=None, assignment=None)[TARGET_OPTIONS])
    assert ours["ipuLinkDomainSize"] == str(domain)
    assert ours["ipuLinkTopology"] == default_fabric(domain).topology == System.pod(domain).fabric(domain, 1).topology


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "7", "[1]"], ids=["deep", "unfinished", "a number", "a list"])
def test_unreadable_options_are_left_to_the_program(text):
    assert target_options(text) == text
