"""A verdict as plain values for JSON, and back: the schema that docs/audit.md describes."""

import types
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from enum import StrEnum
from math import inf, nan
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from windermere.errors import UsageError, describe_value
from windermere.records import plain
from windermere.report.reading import VERSION, check_version

if TYPE_CHECKING:
    from windermere.auditing.verdict import Verdict

DERIVED = ("version", "safe_step", "safe_solver", "scene")
"""What is written for readers' convenience, and not read."""
LOST = {"low": -inf, "high": inf, "evaluations": nan}
"""What JSON has as null for it is not finite."""
PLAIN: Mapping[Any, tuple[type, ...]] = {str: (str,), int: (int,), float: (int, float), bool: (bool,)}
"""What JSON may have for a field of a type; a whole number stands for itself."""
Made = TypeVar("Made")


def written(verdict: "Verdict") -> dict[str, Any]:
    """All but the trajectories of its figure and its page."""
    values = asdict(replace(verdict, plane=None, scene=None))
    del values["plane"], values["scene"]
    values |= {name: str(values[name]) for name in ("outcome", "kind")}
    also = {"version": VERSION, "safe_step": verdict.safe_step, "safe_solver": verdict.safe.solver}
    return {name: plain(value) for name, value in {**also, **values}.items()}


def read_verdict(kind: "type[Verdict]", values: Mapping[str, Any]) -> "Verdict":
    """Refuses what is no verdict, and one of another version."""
    if not isinstance(values, Mapping) or "version" not in values:
        raise UsageError(f"a verdict is read from what its to_dict() wrote, not from {describe_value(values)}")
    check_version(values["version"])
    try:
        made = _made(kind, {name: value for name, value in values.items() if name not in DERIVED})
        str(made)  # numbers that cannot be told, such as a threshold below 0, are damage too
    except (ArithmeticError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"this is no verdict that to_dict() wrote: {type(error).__name__}, {error}") from error
    return made


def _made(kind: type[Made], values: Mapping[str, Any]) -> Made:
    """A dataclass from plain values; unknown fields of a later writer are passed over."""
    hints = get_type_hints(kind)
    known = [field for field in fields(kind) if field.name in values]  # type: ignore[arg-type]
    return kind(**{field.name: _value(hints[field.name], values[field.name], field.name) for field in known})


def _value(hint: Any, value: Any, name: str) -> Any:
    """As the type of the field asks for it."""
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if value is None and type(None) not in choices:
        return LOST[name]
    if value is None:
        return None
    (wanted, *_) = [choice for choice in choices if choice is not type(None)]
    if get_origin(wanted) is tuple:
        inner = get_args(wanted)
        kinds = [inner[0]] * len(value) if inner[-1] is ... else inner
        return tuple(_value(kind, each, name) for kind, each in zip(kinds, value, strict=True))
    if is_dataclass(wanted) and isinstance(wanted, type):
        return _made(wanted, value)
    if isinstance(wanted, type) and issubclass(wanted, StrEnum):
        return wanted(value)
    if wanted in PLAIN and not isinstance(value, PLAIN[wanted]):
        raise TypeError(f"{name} is {describe_value(value)}")
    return value
