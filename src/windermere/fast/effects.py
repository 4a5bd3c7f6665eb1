"""What a call does beside computing, as far as it can be seen in its code."""

import dis
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from windermere.fast.code import is_fixed

OUTWARD = frozenset({"print", "open", "input", "breakpoint", "exec", "eval", "logging", "logger", "log", "warnings"})
OUTWARD |= {"time", "random", "datetime", "os"}
"""Global names of what does more than compute."""


def effects_of(objects: Iterable[Any]) -> str | None:
    """What one of these functions does beside computing, in words; None where nothing is seen."""
    codes = (it.__code__ for it in objects if isinstance(it, FunctionType) and not is_fixed(it.__module__ or ""))
    return next((effect for code in codes if (effect := _effect(code)) is not None), None)


@lru_cache(maxsize=512)
def _effect(code: CodeType) -> str | None:
    for instruction in _instructions(code):
        operation, name = instruction.opname, str(instruction.argval)
        if operation in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            return f"it writes to the global variable '{name}'"
        if operation == "STORE_DEREF" and name in code.co_freevars:
            return f"it writes to the variable '{name}' of a function around it"
        if operation == "LOAD_GLOBAL" and name in OUTWARD:
            return f"it refers to '{name}'"
    return None


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
