"""What a function's code names: globals with the attributes asked of them, modules imported on the way, and all other
names, which may be those of attributes and methods."""

import dis
import sys
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

FOREIGN = frozenset(("torch", "numpy", "einops", "triton"))
"""Packages whose code stays as it is while a program runs, and whose objects may hold anything."""
QUIET = frozenset(
    (
        *("_future__", "abc", "builtins", "cmath", "collections", "contextlib", "copy", "dataclasses", "enum"),
        *("fractions", "functools", "itertools", "math", "numbers", "operator", "types", "typing", "typing_extensions"),
    )
)
"""Modules of Python's own whose functions do nothing but compute."""
LOUD = frozenset(("print", "open", "input", "eval", "exec", "compile", "globals", "__import__", "breakpoint"))
"""Functions of Python's own that do more than compute."""
BY_NAME = frozenset(("getattr", "vars", "dir"))
"""Functions that find attributes by names which the code need not show."""
GLOBAL = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
"""How Python's own code loads a global."""


class Names(NamedTuple):
    """What a piece of code names, and all functions within it."""

    chains: tuple[tuple[str, ...], ...]
    """Globals, each with the attributes asked of it: ("config", "alpha")."""
    imports: tuple[str, ...]
    """Modules that it imports when it runs."""
    others: frozenset[str]
    """Every name but those of local variables."""


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> Names:
    """What this code names."""
    chains: list[tuple[str, ...]] = []
    imports: list[str] = []
    others = set(code.co_names)
    chain: tuple[str, ...] = ()
    for step in dis.get_instructions(code):
        if step.opname in ("EXTENDED_ARG", "PUSH_NULL", "CACHE"):
            continue
        if chain and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            chain = (*chain, step.argval)
            continue
        if chain:
            chains.append(chain)
        chain = (step.argval,) if step.opname in GLOBAL else ()
        if step.opname == "IMPORT_NAME":
            imports.append(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found = names_of(inner)
            chains += found.chains
            imports += found.imports
            others |= found.others
    return Names(tuple(dict.fromkeys(chains)), tuple(dict.fromkeys(imports)), frozenset(others))


@lru_cache(maxsize=1024)
def is_foreign(module: str) -> bool:
    """Whether this is a package whose code stays as it is, and whose objects may hold anything."""
    return module.split(".")[0] in FOREIGN


@lru_cache(maxsize=1024)
def is_fixed(module: str) -> bool:
    """Whether the code of this module stays as it is, and does nothing but compute."""
    root = module.split(".")[0]
    return (root in FOREIGN and ".random" not in module) or root.removeprefix("_") in QUIET or root == "windermere"


@lru_cache(maxsize=1024)
def is_standard(module: str) -> bool:
    """Whether this is one of Python's own modules."""
    return module.split(".")[0] in sys.stdlib_module_names
