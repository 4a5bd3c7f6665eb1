"""Damage to files: what it is depends on the file and a seed alone, so that an example can be tried again."""

from random import Random
from typing import Any


def damaged(chance: Random, data: bytes) -> bytes:
    """Bytes with one bit flipped, cut off, overwritten with zeros, or with more behind them."""
    place = chance.randrange(max(1, len(data)))
    kind = chance.choice(["flip", "flip", "flip", "cut", "zeros", "more"])
    if kind == "flip" and data:
        return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
    if kind == "zeros":
        return data[:place] + bytes(len(data) - place)
    return data[:place] if kind == "cut" else data + chance.randbytes(chance.randint(1, 9))


def otherwise(chance: Random, value: Any) -> Any:
    """JSON with one number, word or entry in it that is another one; kinds stay, so that it still makes some sense."""
    if isinstance(value, dict) and value:
        name = chance.choice(sorted(value))
        return {**value, name: otherwise(chance, value[name])}
    if isinstance(value, list) and value:
        place = chance.randrange(len(value))
        return [*value[:place], otherwise(chance, value[place]), *value[place + 1 :]]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return chance.choice([value + 1, value * 2, -value, 0])
    return chance.choice([None, "x", 3, "adam", "sgd", "float64", "sphere3", {}, []])
