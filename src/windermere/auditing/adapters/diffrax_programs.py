"""Passes that JAX compiles once for all precisions: steps, tolerances and times are arguments of the compiled function.

Without that, a model that is compiled as a whole is compiled for each number, and one whose field is a closure too.
"""

import logging
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from windermere.auditing.adapters.diffrax_solves import Solve, watching
from windermere.errors import AuditError
from windermere.solvers import Solver


class Program:
    """call(model, x) with other solvers, compiled for what is `given` (all three) but for the numbers in its arrays."""

    def __init__(self, call: Callable[[Any, Any], Any], own: tuple[Solver, ...], given: Any, *, double: bool) -> None:
        equinox, jax = import_module("equinox"), import_module("jax")
        traces: list[list[Solve]] = []
        numbers, rest = equinox.partition(given, equinox.is_array)
        structure = jax.tree_util.tree_structure(numbers)

        def traced(*leaves: Any) -> Any:
            model, x, solvers = equinox.combine(jax.tree_util.tree_unflatten(structure, leaves), rest)
            left = list(zip(own, solvers, strict=True))
            with watching(lambda asked: _next(left, asked), double=double) as seen:
                traces.append(seen)
                return call(model, x)

        # Not equinox's, which JAX would keep for good together with all that is captured.
        self.compiled = jax.jit(traced).lower(*_numbers(given)).compile()
        self.seen = traces.pop()
        if len(self.seen) != len(own):
            raise AuditError(f"traced, the model solves {len(self.seen)} times where it did {len(own)} times")

    def run(self, given: Any) -> tuple[Any, list[Solve]]:
        for solve in self.seen:
            solve.steps = []
        with _unlogged():
            outputs = np.asarray(self.compiled(*_numbers(given)))
            import_module("jax").effects_barrier()
        return outputs, self.seen


def widths_drawn(call: Callable[[Any, Any], Any], model: Any, x: Any) -> frozenset[int]:
    """The bits of the random numbers that call(model, x) draws; none where all cannot be traced at once."""
    equinox, jax = import_module("equinox"), import_module("jax")
    numbers, rest = equinox.partition((model, x), equinox.is_array)
    try:
        with watching(None, double=False):
            traced = jax.make_jaxpr(lambda part: call(*equinox.combine(part, rest)))(numbers)
    except Exception:  # whatever the model raises  # noqa: BLE001
        return frozenset()
    return frozenset(_widths(traced.jaxpr))


def _widths(traced: Any) -> Iterator[int]:
    for step in traced.eqns:
        if step.primitive.name == "random_bits":
            yield step.params["bit_width"]
        for part in import_module("jax").tree_util.tree_leaves(list(step.params.values()), is_leaf=_is_traced):
            if _is_traced(part):
                yield from _widths(getattr(part, "jaxpr", part))


def _is_traced(part: Any) -> bool:
    return hasattr(part, "eqns") or hasattr(part, "jaxpr")


def kind_of(given: Any) -> Hashable:
    """What JAX compiles for: all but the numbers in arrays."""
    leaves, structure = import_module("jax").tree_util.tree_flatten(given)
    return structure, *((leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else leaf for leaf in leaves)


def _numbers(given: Any) -> list[Any]:
    """All arrays: what a program takes."""
    equinox = import_module("equinox")
    arrays: list[Any] = import_module("jax").tree_util.tree_leaves(equinox.filter(given, equinox.is_array))
    return arrays


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
