"""Mutations: small damage to bytes, words, and values of JSON and TOML."""

from __future__ import annotations

import json
import random
from typing import Any

__all__ = ["ODD_WORDS", "damaged", "deep_json", "deep_toml", "odd_value", "torn_word"]

#: Words that few readers expect.
ODD_WORDS = (
    *("", " ", "-", "--", "=", "$N", "{name}", "%s", "\\", "'", '"', "#", "a\nb", "\x00", "\x1b[2J"),
    *("\udcff", "٣", "é"),
    *("-1", "0", "00", "0x2", "1e999", "1.5", "nan", "inf", "-inf", "9" * 30, str(2**31), str(2**63), str(-(2**63))),
    *("true", "no", "null", "two", "1,2", "1,,2", "[", "]", "[0-", "n[3-1]", "n[0-99999999]", "a" * 300, "../../x"),
    *("/dev/zero", "/dev/null", "/proc/self/mem", "/", ".", "~", "*", "localhost:0", "::1", "h:1:2", "a=b=c"),
)

_ODD_NUMBERS = (0, 1, 2, 7, 8, 127, 128, 255, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def damaged(data: bytes, dice: random.Random) -> bytes:
    """``data`` with one to eight changes: bytes set, lost, added, doubled, or the end cut off."""
    changed = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 8])):
        place, length = dice.randrange(len(changed) + 1), dice.choice([1, 1, 2, 4, 8, 40])
        match dice.randrange(6):
            case 0:
                changed[place : place + length] = dice.randbytes(length)
            case 1:
                del changed[place : place + length]
            case 2:
                changed[place:place] = dice.randbytes(length)
            case 3:
                changed[place:place] = changed[place : place + length]
            case 4:
                size = dice.choice([1, 2, 4, 8])
                order = dice.choice(["little", "big"])
                number = dice.choice(_ODD_NUMBERS) % 256**size
                changed[place : place + size] = number.to_bytes(size, order)  # type: ignore[arg-type]
            case _:
                if dice.random() < 0.3:
                    del changed[place:]
    return bytes(changed)


def torn_word(word: str, dice: random.Random) -> list[str]:
    """The word with a typing error, or something else in its place; possibly several words, or none."""
    cut = dice.randrange(len(word) + 1)
    name, _, value = word.partition("=")
    odd = dice.choice(ODD_WORDS)
    forms = [
        [],
        [word, word],
        [word[:cut], word[cut:]],
        [word[:cut] + word[cut + 1 :]],
        [word[:cut] + odd + word[cut:]],
        [odd],
        [name, odd],
        [f"{name}={odd}"],
        [f"{name}={value}="],
        [word.replace("-", "_")],
        [word.upper()],
    ]
    return dice.choice(forms)


def odd_value(dice: random.Random, levels: int = 2) -> Any:
    """Any JSON value."""
    kind = dice.randrange(9 if levels else 6)
    if kind == 6:
        return [odd_value(dice, levels - 1) for _ in range(dice.randrange(4))]
    if kind == 7:
        return {dice.choice(ODD_WORDS): odd_value(dice, levels - 1) for _ in range(dice.randrange(4))}
    if kind == 8:
        return json.loads(deep_json(dice.choice([3, 50, 200])))
    odd = (None, dice.random() < 0.5, dice.choice(_ODD_NUMBERS), -dice.choice(_ODD_NUMBERS), 1e308 * 10, 0.5)
    return dice.choice([dice.choice(ODD_WORDS), odd[kind]])


def deep_json(levels: int, dice: random.Random | None = None) -> str:
    """Lists, or objects, in one another."""
    if dice and dice.random() < 0.5:
        return '{"a":' * levels + "1" + "}" * levels
    return "[" * levels + "]" * levels


def deep_toml(levels: int, dice: random.Random) -> str:
    """A value, or a key, of many levels."""
    if dice.random() < 0.5:
        return "x = " + deep_json(levels)
    return ".".join("a" * levels) + " = 1"
