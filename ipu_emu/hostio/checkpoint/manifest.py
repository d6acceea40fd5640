"""Manifest: the content of ``checkpoint.json``: the parts of a checkpoint, with checksums of its files and itself.

    {
     "format": 2,
     "step": 120,
     "replicas": 4,
     "state": {...},                                              the program's, and of the random numbers
     "groups": {"bias": 2},                                       tensors that differ between groups of replicas
     "files": {"instance-0-of-1.safetensors": [30208, "9f86..."]},    bytes and SHA-256
     "sha256": "60303..."                                         of all bytes before this line
    }

The checksum detects any changed byte; each field is checked nevertheless, because anyone can compute a checksum.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

FORMAT = 2
#: The most bytes of a manifest, far more than the state of any program needs.
MOST_BYTES = 1 << 28
#: Keys of ``state``: the program's own state, and [seed, steps] of the random numbers.
PROGRAM, RANDOM = "program", "random numbers"

_MOST = (1 << 64) - 1
_FILE = re.compile(r"instance-(\d+)-of-(\d+)\.safetensors")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_END = b',\n "sha256": "%s"\n}\n'
_END_BYTES = len(_END % (b"0" * 64))


@dataclass(frozen=True)
class Manifest:
    """``files`` maps names to (bytes, SHA-256), ``groups`` ids of tensors to numbers of groups."""

    step: int
    state: Mapping[str, Any]
    files: Mapping[str, tuple[int, str]]
    groups: Mapping[str, int] = field(default_factory=dict)
    replicas: int = 1

    def encoded(self) -> bytes:
        """Return the content of the file."""
        content = {"format": FORMAT, "step": self.step, "replicas": self.replicas, "state": self.state}
        text = json.dumps(content | {"groups": self.groups, "files": self.files}, indent=1)
        body = text.removesuffix("\n}").encode()
        return body + _end(body)

    @classmethod
    def decoded(cls, data: bytes) -> Manifest:
        """Return the manifest in ``data``; raise ValueError if it is not a manifest."""
        body, end = data[:-_END_BYTES], data[-_END_BYTES:]
        if not body or end != _end(body):
            raise ValueError("checkpoint.json is damaged, or of another version: its checksum does not match")
        try:
            return _read(json.loads(data))
        except RecursionError:
            raise ValueError("checkpoint.json is nested too deeply") from None


def _end(body: bytes) -> bytes:
    return _END % sha256(body).hexdigest().encode()


def _read(content: Any) -> Manifest:
    fields = _dict(content, "its content")
    if _count(fields.get("format"), "format") != FORMAT:
        raise ValueError(f"checkpoint.json is of format {fields['format']}; this version reads format {FORMAT}")
    files = {name: _file(name, value) for name, value in _dict(fields.get("files"), "files").items()}
    if sorted(files) != sorted(f"instance-{i}-of-{len(files)}.safetensors" for i in range(len(files))) or not files:
        raise ValueError("checkpoint.json has wrong files: there must be one of each instance")
    groups = {id: _count(value, "groups", 1) for id, value in _dict(fields.get("groups"), "groups").items()}
    state = _dict(fields.get("state"), "state")
    _dict(state.get(PROGRAM), "state")
    random = state.get(RANDOM)
    if not isinstance(random, list) or len(random) != 2:
        raise ValueError("checkpoint.json has a wrong state of the random numbers")
    for number in random:
        _count(number, "state of the random numbers")
    step, replicas = _count(fields.get("step"), "step"), _count(fields.get("replicas"), "replicas", 1)
    return Manifest(step, state, files, groups, replicas)


def _file(name: str, value: Any) -> tuple[int, str]:
    if not _FILE.fullmatch(name) or not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"checkpoint.json has a wrong file {name!r}")
    size, digest = value
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError(f"checkpoint.json has a wrong checksum of {name}")
    return _count(size, f"size of {name}"), digest


def _dict(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"checkpoint.json has no valid {what}")
    return value


def _count(value: Any, what: str, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= _MOST:
        raise ValueError(f"checkpoint.json has no valid {what}")
    return value
