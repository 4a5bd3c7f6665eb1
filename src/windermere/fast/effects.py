"""What a call does beside computing: what can be seen of it in its code, and undoing what it changed."""

import dis
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from windermere.fast.fingerprint import is_fixed

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


class Undo:
    """Remembers what lists, dictionaries, sets and attributes hold, to put it back."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self.kept: list[tuple[Any, Any]] = []
        for it in objects:
            if isinstance(it, list | dict | set):
                self.kept.append((it, it.copy()))
            elif isinstance(it, nn.Module):
                own = vars(it)
                self.kept += [(own, own.copy()), *((own[k], own[k].copy()) for k in ("_parameters", "_buffers"))]
            elif isinstance(attributes := getattr(it, "__dict__", None), dict) and not isinstance(it, FunctionType):
                self.kept.append((attributes, attributes.copy()))

    def now(self) -> None:
        """Put back what was changed."""
        for it, before in self.kept:
            if isinstance(it, list) and not _is_same(it, before):
                it[:] = before
            elif isinstance(it, dict | set) and not (
                list(it) == list(before) and _is_same(*map(_values, (it, before)))
            ):
                it.clear()
                it.update(before)


def _values(it: Any) -> Any:
    return it.values() if isinstance(it, dict) else it


def _is_same(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
