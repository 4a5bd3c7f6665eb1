"""Passes that JAX compiles once for all precisions: steps, tolerances and times are arguments of the compiled function.

Without that, a model that is compiled as a whole is compiled for each number, and one whose field is a closure too.
"""

import logging
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from windermere.audit.adapters.diffrax_solves import Solve, watching
from windermere.errors import AuditError
from windermere.solvers import Solver


class Program:
    """call(model, x) with other solvers, compiled for what is `given` (all three) but for the numbers in its arrays."""

    def __init__(self, call: Callable[[Any, Any], Any], own: tuple[Solver, ...], given: Any, *, double: bool) -> None:
        traces: list[list[Solve]] = []

        def traced(model: Any, x: Any, solvers: Any) -> Any:  # JAX keeps it for good: it must not hold the program
            left = list(zip(own, solvers, strict=True))
            with watching(lambda asked: _next(left, asked), double=double) as seen:
                traces.append(seen)
                return call(model, x)

        self.compiled = import_module("equinox").filter_jit(traced).lower(*given).compile()
        self.seen = traces.pop()
        if len(self.seen) != len(own):
            raise AuditError(f"traced, the model solves {len(self.seen)} times where it did {len(own)} times")

    def run(self, given: Any) -> tuple[Any, list[Solve]]:
        for solve in self.seen:
            solve.steps = []
        with _unlogged():
            outputs = np.asarray(self.compiled(*given))
            import_module("jax").effects_barrier()
        return outputs, self.seen


def kind_of(given: Any) -> Hashable:
    """What JAX compiles for: all but the numbers in arrays."""
    leaves, structure = import_module("jax").tree_util.tree_flatten(given)
    return structure, *((leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else leaf for leaf in leaves)


def _next(left: list[tuple[Solver, Any]], asked: Solver) -> Any:
    """The solves of a pass are known by their order."""
    own, chosen = left.pop(0)
    if own != asked:
        raise AuditError(f"traced, the model solves with {asked} where it did with {own}")
    return chosen


@contextmanager
def _unlogged() -> Iterator[None]:
    """JAX logs what stops a program besides raising it; equinox keeps it quiet likewise."""

    def other(record: logging.LogRecord) -> bool:
        return record.getMessage() != "jax.pure_callback failed"

    logger = logging.getLogger("jax._src.callback")
    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)
