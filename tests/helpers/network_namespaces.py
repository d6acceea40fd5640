"""Hosts on one machine: network namespaces joined by a bridge, with a host name, an address and an sshd each.

Nothing reaches the real network: the bridge sits in a namespace of its own. Needs root, iproute2 and openssh-server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Hosts", "hosts", "needs_hosts", "unavailable"]

_MISSING = [tool for tool in ("ip", "sshd", "ssh", "unshare", "ssh-keygen") if not shutil.which(tool)]
#: The reason why hosts cannot be created here, "" if they can.
unavailable = "needs root" if os.geteuid() else f"needs {', '.join(_MISSING)}" if _MISSING else ""


def needs_hosts(test: object) -> object:
    """Mark a test that runs on namespace hosts; it is skipped, with the reason, where they cannot be made."""
    import pytest  # scripts and benchmarks make hosts without it

    return pytest.mark.netns(pytest.mark.skipif(bool(unavailable), reason=f"network namespaces: {unavailable}")(test))


@dataclass(frozen=True)
class Hosts:
    """Running hosts: their names, and the ssh that reaches them."""

    names: list[str]
    ssh: Path

    def command(self, host: int, argv: Sequence[object]) -> list[str]:
        """``argv`` as a command that runs on ``host``."""
        name = self.names[host]
        inside = ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "x", *map(str, argv)]
        return ["ip", "netns", "exec", name, *inside]

    def address(self, host: int) -> str:
        """The address of ``host``."""
        return _address(host)

    def sent_bytes(self, host: int) -> int:
        """Bytes that ``host`` has put on its link."""
        command = self.command(host, ["cat", "/proc/net/dev"])
        text = subprocess.run(command, capture_output=True, text=True, check=True)
        line = next(line for line in text.stdout.splitlines() if line.strip().startswith(f"v{host}:"))
        return int(line.split(":")[1].split()[8])

    def limit(self, rate: str) -> None:
        """Limit the rate at which each host sends, in tc's notation: "1gbit"."""
        for host, name in enumerate(self.names):
            shape = ["tbf", "rate", rate, "burst", "256kb", "latency", "100ms"]
            _run("tc", "-n", name, "qdisc", "add", "dev", f"v{host}", "root", *shape)


@contextmanager
def hosts(count: int, folder: Path, *, names: Sequence[str] = (), bridge: str = "") -> Iterator[Hosts]:
    """Create ``count`` hosts, by default with unique names; ``folder`` holds their keys and logs."""
    bridge = bridge or f"pp{os.urandom(3).hex()}"  # two namespaces may use the same pid
    names = [*names] or [f"{bridge}h{i}" for i in range(count)]
    try:
        _wire(bridge, names)
        ssh = _serve(names, folder)
        yield Hosts(names, ssh)
    finally:
        for file in folder.glob("*.pid"):
            subprocess.run(["kill", file.read_text().strip()], check=False)
        for name in [*names, bridge]:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)


def _address(host: int) -> str:
    return f"10.77.0.{host + 1}"


def _wire(bridge: str, names: list[str]) -> None:
    _run("ip", "netns", "add", bridge)
    _run("ip", "-n", bridge, "link", "add", "bridge", "type", "bridge")
    _run("ip", "-n", bridge, "link", "set", "bridge", "up")
    table = "127.0.0.1 localhost\n" + "".join(f"{_address(i)} {name}\n" for i, name in enumerate(names))
    for i, name in enumerate(names):
        Path("/etc/netns", name).mkdir(parents=True)
        Path("/etc/netns", name, "hosts").write_text(table)
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", f"v{i}", "netns", name, "type", "veth", "peer", "name", f"p{i}", "netns", bridge)
        _run("ip", "-n", bridge, "link", "set", f"p{i}", "master", "bridge", "up")
        _run("ip", "-n", name, "addr", "add", f"{_address(i)}/24", "dev", f"v{i}")
        _run("ip", "-n", name, "link", "set", f"v{i}", "up")
        _run("ip", "-n", name, "link", "set", "lo", "up")


def _serve(names: list[str], folder: Path) -> Path:
    """Start an sshd on every host; return the ssh to use."""
    Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("id", "hostkey"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key)
    (folder / "authorized_keys").write_bytes((folder / "id.pub").read_bytes())
    host_key = " ".join((folder / "hostkey.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text("".join(f"{name},{_address(i)} {host_key}\n" for i, name in enumerate(names)))
    for i in range(len(names)):
        config = folder / f"sshd{i}.conf"
        config.write_text(
            f"Port 22\nListenAddress {_address(i)}\nHostKey {folder}/hostkey\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nPidFile {folder}/sshd{i}.pid\n"
            "PermitRootLogin yes\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nMaxStartups 100\n"
            "SetEnv SHLVL=1\n"  # so that bash does not read .bashrc, which may take a lock
        )
        server = [shutil.which("sshd"), "-f", config, "-E", folder / f"sshd{i}.log"]
        _run(*Hosts(names, folder).command(i, server))
    ssh = folder / "ssh"
    ssh.write_text(
        f"#!/bin/sh\nexec {shutil.which('ssh')} -i {folder}/id -o UserKnownHostsFile={folder}/known_hosts "
        '-o StrictHostKeyChecking=yes -o LogLevel=ERROR -o BatchMode=yes "$@"\n'
    )
    ssh.chmod(0o755)
    deadline = time.monotonic() + 20
    for i in range(len(names)):
        while not (folder / f"sshd{i}.pid").exists():
            assert time.monotonic() < deadline, (folder / f"sshd{i}.log").read_text()
            time.sleep(0.02)
    return ssh


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
