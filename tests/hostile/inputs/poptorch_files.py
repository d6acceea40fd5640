"""PopTorch files: damaged files of ``save``, which hold a pickle: none is read beyond its checksum."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.helpers.address_space import at_most
from tests.hostile.inputs.mutations import damaged
from tests.hostile.kind import Trial, Unavailable

__all__ = ["poptorch_files"]

#: The most memory that reading a damaged file may take; undamaged files are far smaller.
_MOST_MEMORY = 1 << 30

_REFUSAL = "model.poptorch: 'poptorch_py_error': it is damaged, or not a PopTorch file"


@contextmanager
def poptorch_files() -> Iterator[Trial]:
    """Damaged files of ``save``: one message each, and little memory."""
    try:
        import torch  # slow to import, so only when needed
    except ImportError:
        raise Unavailable("there is no PyTorch") from None
    import ipu_emu.poptorch as poptorch

    torch.set_num_threads(1)
    x = torch.ones(1, 2)
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2))
    expected = model(x)
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.poptorch")
        model.save(str(file))
        content = file.read_bytes()

        def trial(dice: random.Random) -> list[str]:
            data = _harmed(content, dice)
            file.write_bytes(data)
            if dice.random() < 0.1:
                os.truncate(file, dice.randrange(len(data), 15 << 30))  # sparse: takes no disk space
            is_whole = data == content and file.stat().st_size == len(content)
            reader = poptorch.load if is_whole else dice.choice((poptorch.load, model.loadExecutable))
            try:
                with nullcontext() if is_whole else at_most(_MOST_MEMORY):
                    loaded = reader(str(file))
            except poptorch.Error as error:
                return [] if _REFUSAL in str(error) and not is_whole else [f"the message is {error}"]
            if not is_whole:
                return ["a damaged file was loaded"]
            same = torch.equal(loaded(x), expected)
            loaded.destroy()
            return [] if same else ["a whole file computes something else"]

        yield trial


def _harmed(content: bytes, dice: random.Random) -> bytes:
    match dice.randrange(4):
        case 0:
            place, bit = dice.randrange(len(content)), 1 << dice.randrange(8)
            return content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]
        case 1:
            return content[: dice.randrange(len(content))]
        case 2:
            return content[: dice.choice([0, 8, 16, 48])] + dice.randbytes(dice.randrange(2000))
        case _:
            return damaged(content, dice)
