"""The manifest of a checkpoint: every change is detected, and so is a field with a wrong value."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ipu_emu.hostio.checkpoint.checkpoint_folder import Folder
from ipu_emu.hostio.checkpoint.manifest import PROGRAM, RANDOM, Manifest
from ipu_emu.hostio.checkpoint.safetensors_file import read

DIGEST = sha256(b"data").hexdigest()
NAME, OLDER, FILE = "step-000000120", "step-000000110", "instance-0-of-1.safetensors"
MANIFEST = Manifest(
    120, {PROGRAM: {"loss": 0.5, "best": float("inf")}, RANDOM: [7, 120]}, {FILE: (4, DIGEST)}, {"bias": 2}, 4
)


def sealed(content: bytes) -> bytes:
    """Any content as a file with a valid checksum."""
    body = content.removesuffix(b"}")
    return body + b',\n "sha256": "%s"\n}\n' % sha256(body).hexdigest().encode()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder of two checkpoints."""
    for name, step in ((NAME, 120), (OLDER, 110)):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).write_bytes(b"data")
        manifest = Manifest(step, MANIFEST.state, MANIFEST.files, MANIFEST.groups, 4)
        (tmp_path / name / "checkpoint.json").write_bytes(manifest.encoded())
    return Folder(tmp_path)


def test_a_written_profile_is_json_and_can_be_read() -> None:
    assert Manifest.decoded(MANIFEST.encoded()) == MANIFEST
    assert json.loads(MANIFEST.encoded())["step"] == 120


def test_every_changed_byte_and_every_length_lead_to_the_checkpoint_before(folder: Folder) -> None:
    encoded, path = MANIFEST.encoded(), folder.path / NAME / "checkpoint.json"
    draw = random.Random(0)
    changed = [
        encoded[:at] + bytes([byte ^ draw.randrange(1, 256)]) + encoded[at + 1 :] for at, byte in enumerate(encoded)
    ]
    for content in [*changed, *(encoded[:length] for length in range(len(encoded))), encoded + b"\n", b" " + encoded]:
        path.write_bytes(content)
        (newest, fault), (older, manifest) = folder.verified(folder.names())
        assert (newest, older) == (NAME, OLDER)
        assert isinstance(fault, str)
        assert "checkpoint.json is damaged" in fault
        assert isinstance(manifest, Manifest)


def edited(*keys: str, value: Any) -> str:
    content: dict[str, Any] = json.loads(MANIFEST.encoded())
    del content["sha256"]
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return json.dumps(content)


LIES = {
    "another format": edited("format", value=3),
    "a flag as format": edited("format", value=True),
    "a negative step": edited("step", value=-1),
    "another step": edited("step", value=121),
    "an enormous step": edited("step", value=1 << 80),
    "a step as text": edited("step", value="120"),
    "no replica": edited("replicas", value=0),
    "no state": edited("state", value=None),
    "a list as state": edited("state", PROGRAM, value=[1]),
    "one random number": edited("state", RANDOM, value=[7]),
    "text as random number": edited("state", RANDOM, value=["7", 120]),
    "no group": edited("groups", "bias", value=0),
    "half a group": edited("groups", "bias", value=1.5),
    "no files": edited("files", value={}),
    "a file elsewhere": edited("files", value={"../../etc/passwd": [4, DIGEST]}),
    "a file of nobody": edited("files", value={"instance-1-of-1.safetensors": [4, DIGEST]}),
    "too few files": edited("files", value={"instance-0-of-2.safetensors": [4, DIGEST]}),
    "no checksum": edited("files", FILE, value=[4, ""]),
    "another length": edited("files", FILE, value=[5, DIGEST]),
    "a negative length": edited("files", FILE, value=[-4, DIGEST]),
    "no JSON": "{",
    "a list": "[[]}",
    "nesting": '{"state": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a long number": '{"step": ' + "9" * 5000 + "}",
    "no UTF-8": '{"step": "\udcff"}',
}


@pytest.mark.parametrize("content", LIES.values(), ids=LIES)
def test_wrong_fields_with_a_valid_checksum_are_found(content: str, folder: Folder) -> None:
    data = sealed(content.encode(errors="surrogateescape"))
    (folder.path / NAME / "checkpoint.json").write_bytes(data)
    (_, fault), (_, manifest) = folder.verified(folder.names())
    assert isinstance(fault, str)
    assert fault
    assert isinstance(manifest, Manifest)


@pytest.mark.parametrize("name", ["checkpoint.json", FILE])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_pipes_and_folders_are_refused_without_waiting(name: str, kind: str, folder: Folder) -> None:
    place = folder.path / NAME / name
    place.unlink()
    make: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(place),
        "device": lambda: place.symlink_to("/dev/zero"),
        "folder": place.mkdir,
    }
    make[kind]()
    (_, fault), (_, manifest) = folder.verified(folder.names())
    assert isinstance(fault, str)
    assert fault.startswith(f"{name}: ")
    assert isinstance(manifest, Manifest)


def test_arrays_with_contradictory_headers_raise_value_error(tmp_path: Path) -> None:
    """Headers with other lengths, offsets, shapes, types; 500 random changes."""
    head = b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}'
    head += b',"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}}'
    encoded = len(head).to_bytes(8, "little") + head + bytes(range(32))
    (tmp_path / "x").write_bytes(encoded)
    assert read(tmp_path / "x")["w"].shape == (2, 3)
    draw = random.Random(0)
    refused = 0
    for _ in range(500):
        data = bytearray(encoded)
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.choice([0, 1, 0x7F, 0xFF, *b'0129F{}[],:"', draw.randrange(256)])
        (tmp_path / "x").write_bytes(data[: draw.choice([len(data), draw.randrange(len(data))])])
        try:
            arrays = read(tmp_path / "x")
        except ValueError:
            refused += 1
        else:
            assert sum(array.nbytes for array in arrays.values()) <= len(encoded)
    assert refused > 300
