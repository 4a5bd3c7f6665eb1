"""What a function's code names: globals with the attributes asked of them, modules imported on the way, and all other
names, which may be those of attributes and methods."""

import dis
import sys
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

FOREIGN = frozenset(("torch", "numpy", "einops", "triton"))
"""Packages whose code stays as it is while a program runs, and whose objects may hold anything."""
QUIET = frozenset(
    (
        *("_future__", "abc", "builtins", "cmath", "collections", "contextlib", "copy", "dataclasses", "enum"),
        *("fractions", "functools", "itertools", "math", "numbers", "operator", "types", "typing", "typing_extensions"),
    )
)
"""Modules of Python's own whose functions do nothing but compute."""
LOUD = frozenset(
    ("print", "open", "input", "eval", "exec", "compile", "globals", "__import__", "breakpoint", "id", "hash")
)
"""Functions of Python's own that do more than compute, or tell objects apart that are alike."""
BY_NAME = frozenset(("getattr", "hasattr", "vars", "dir", "attrgetter", "methodcaller", "__getattribute__", "__dict__"))
"""What finds attributes by names which the code need not show."""
GLOBAL = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
"""How Python's own code loads a global."""
WRITING = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL"))


class Names(NamedTuple):
    """What a piece of code names, and all functions within it."""

    chains: tuple[tuple[str, ...], ...]
    """Globals, each with the attributes asked of it: ("config", "alpha")."""
    imports: tuple[str, ...]
    """Modules that it imports when it runs; those of its own package with a dot."""
    others: frozenset[str]
    """Every name but those of local variables."""
    writes: frozenset[str]
    """Variables outside of it that it writes to: globals, and those of functions around it."""


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> Names:
    """What this code names."""
    chains: list[tuple[str, ...]] = []
    imports: list[str] = []
    others, writes = set(code.co_names), set[str]()
    chain: tuple[str, ...] = ()
    before: tuple[Any, Any] = (None, None)  # an import is told how many packages up it begins, and what it takes
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
            imports.append("." * before[0] + step.argval)
        elif step.opname == "MATCH_CLASS":
            others.add("getattr")  # it asks for attributes too, by names that a class may say
        elif step.opname in WRITING or (step.opname == "STORE_DEREF" and step.argval in code.co_freevars):
            writes.add(step.argval)
        before = before[1], step.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found = names_of(inner)
            chains += found.chains
            imports += found.imports
            others |= found.others
            writes |= found.writes - {*code.co_cellvars}  # those are of this call alone
    return Names(tuple(dict.fromkeys(chains)), tuple(dict.fromkeys(imports)), frozenset(others), frozenset(writes))


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
