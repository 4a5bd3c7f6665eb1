"""Calls of `diffrax.diffeqsolve`: what they ask for, and the same calls with solvers of ours.

`diffeqsolve` is one object wherever it was imported to, so its calls can be led through here without looking for names.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from windermere.auditing.adapters.diffrax_landing import asked_times, stopping_at
from windermere.auditing.adapters.interception import Interception
from windermere.auditing.adapters.solves import nearest_method, stand_in_note
from windermere.errors import AuditError, DoublePrecisionError
from windermere.solvers import METHODS as TABLEAUS
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver
from windermere.solvers.landing import has_to_land

METHODS = {
    "Euler": "euler",
    "Midpoint": "midpoint",
    "Heun": "heun",
    "Bosh3": "bosh32",
    "Dopri5": "dopri54",
    "Tsit5": "tsit54",
}
"""Diffrax's classes of solvers and our names of their methods."""
MOST_STEPS, MOST_STEPS_KEPT = 2**20, 2**14
"""How many steps a solve may take; fewer where the model keeps all of them, which takes room beforehand."""

Answer: TypeAlias = Callable[[Solver], tuple[Any, Any, Any]]
"""From a solve's own solver to the one to carry it out with, as diffrax takes it."""


def diffrax_solver(solver: Solver) -> tuple[Any, Any, Any]:
    """One of our solvers as diffrax takes it: solver, stepsize_controller, dt0 (positive: negate it backwards)."""
    diffrax, jnp = import_module("diffrax"), import_module("jax.numpy")
    stepper = _stepper(solver.method)
    # Arrays, not floats: diffrax compiles anew for each number that it is given as a float.
    if isinstance(solver, FixedStep):
        return stepper, diffrax.ConstantStepSize(), jnp.asarray(solver.step)
    if isinstance(solver, OnGrid):
        return stepper, diffrax.StepTo(ts=jnp.asarray(solver.times)), None
    return stepper, diffrax.PIDController(rtol=jnp.asarray(solver.rtol), atol=jnp.asarray(solver.atol)), None


@cache
def _stepper(method: str) -> Any:
    diffrax = import_module("diffrax")
    theirs = {ours: name for name, ours in METHODS.items()}
    if method in theirs:
        return getattr(diffrax, theirs[method])()
    ours = TABLEAUS[method]
    error = ours.error_weights if ours.b_embedded is not None else (0.0,) * ours.stages
    tableau = diffrax.ButcherTableau(
        c=np.array(ours.c[1:]),
        b_sol=np.array(ours.b),
        b_error=np.array(error),
        a_lower=tuple(np.array(row) for row in ours.a[1:]),
    )
    body = {
        "__annotations__": {},
        "__module__": __name__,
        "tableau": tableau,
        "interpolation_cls": diffrax.ThirdOrderHermitePolynomialInterpolation.from_k,
        "order": lambda self, terms: ours.order,
    }
    return type(method, (diffrax.AbstractERK,), body)()


class Solve:
    """One call of `diffeqsolve`, and what it cost."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.used = given["solver"]
        self.steps: list[int] = []
        """The number of steps of each run of this call (there are several inside `lax.scan`). Samples that are mapped
        step together, so the sample with the most steps counts."""
        _check_kind(given)

    def own(self) -> Solver:
        """Our equivalent of what was asked for."""
        controller, name = self.controller(), type(self.given["solver"]).__name__
        adaptive = hasattr(controller, "rtol")
        method = METHODS.get(name, "")
        if method not in TABLEAUS or (adaptive and TABLEAUS[method].b_embedded is None):
            method = nearest_method(self.given["solver"].order(self.given["terms"]), adaptive=adaptive)
        if adaptive:
            rtol, atol = _number(controller.rtol, "rtol"), _number(controller.atol, "atol")
            return Adaptive(method, rtol=rtol, atol=atol, control="sample")
        if hasattr(controller, "ts"):
            return OnGrid(method, tuple(np.asarray(controller.ts, dtype=np.float64).tolist()))
        return FixedStep(method, step=abs(_number(self.given["dt0"], "dt0")))

    def notes(self) -> tuple[str, ...]:
        name, method = type(self.given["solver"]).__name__, self.own().method
        return () if METHODS.get(name) == method else (stand_in_note("diffrax", name, method),)

    def controller(self) -> Any:
        """The controller itself, inside those that clip its steps or make it stop at jumps."""
        controller = self.given["stepsize_controller"]
        while hasattr(controller, "controller"):
            controller = controller.controller
        return controller

    def changed(self, stepper: Any, controller: Any, step: Any) -> dict[str, Any]:
        """The same call with a solver as `diffrax_solver` gives it."""
        jnp = import_module("jax.numpy")
        self.used = stepper
        # In the precision of this pass, also where the times to be saved were made in another.
        start, end = (jnp.asarray(self.given[name], float) for name in ("t0", "t1"))
        saveat = self.given["saveat"]
        times = asked_times(saveat)
        if times is not None and has_to_land(len(times)):
            controller = stopping_at(controller, times)
        parts = import_module("jax").tree_util.tree_leaves(saveat.subs, is_leaf=lambda part: hasattr(part, "steps"))
        most = MOST_STEPS_KEPT if saveat.dense or any(part.steps for part in parts) else MOST_STEPS
        return {
            **self.given,
            "solver": stepper,
            "stepsize_controller": controller,
            "t0": start,
            "t1": end,
            "dt0": None if step is None else jnp.sign(end - start) * step,
            "max_steps": max(most, self.given["max_steps"] or 0),
        }

    def cost(self, steps: Any) -> None:
        self.steps.append(int(steps))

    def evaluations(self) -> int:
        """Stages times steps; a stage that the next step reuses is evaluated once."""
        tableau = getattr(self.used, "tableau", None)
        if tableau is None:
            return sum(self.steps)
        return int(sum(self.steps) * (tableau.num_stages - tableau.fsal) + len(self.steps) * tableau.fsal)


@dataclass
class _Watcher:
    """Answers the calls of one pass."""

    change: Answer | None
    double: bool
    seen: list[Solve] = field(default_factory=list)
    copy: int | None = None
    missed: int = 0

    def answer(self, diffeqsolve: Callable[..., Any], bound: inspect.BoundArguments) -> Any:
        bound.apply_defaults()
        solve, given = Solve(bound.arguments), bound.arguments
        _check_double(given["y0"], self.double)
        solution = diffeqsolve(**(given if self.change is None else solve.changed(*self.change(solve.own()))))
        import_module("jax").debug.callback(solve.cost, _worst()(solution.stats["num_steps"]))
        self.seen.append(solve)
        return solution


def _replace_calls() -> Callable[[], None]:
    target = import_module("diffrax").diffeqsolve
    kind, signature = type(target), inspect.signature(target)
    original = kind.__call__

    def call(function: Any, /, *given: Any, **named: Any) -> Any:
        watcher = CALLS.watcher(None) if function is target else None
        if watcher is None:
            return original(function, *given, **named)
        return watcher.answer(partial(original, function), signature.bind(*given, **named))

    def restore() -> None:
        kind.__call__ = original

    kind.__call__ = call
    return restore


CALLS: Interception[_Watcher] = Interception(_replace_calls)


@contextmanager
def watching(change: Answer | None, *, double: bool) -> Iterator[list[Solve]]:
    """Every call of `diffeqsolve` is noted, and where `change` is given carried out with another solver."""
    watcher = _Watcher(change, double)
    with CALLS.watching(watcher):
        yield watcher.seen


def forget_solves() -> None:
    """JAX keeps what it compiled for a field that is a closure for good, though no other solve can make use of it."""
    compiled: Any = getattr(import_module("diffrax").diffeqsolve, "_cached", None)
    if hasattr(compiled, "clear_cache"):
        compiled.clear_cache()


@cache
def _worst() -> Any:
    """A function that takes the largest number of steps among mapped samples. Without it a callback would be made, and
    compiled, for each sample."""
    worst = import_module("jax").custom_batching.custom_vmap(lambda steps: steps)
    worst.def_vmap(lambda size, mapped, steps: (worst(steps.max(axis=0)), False))
    return worst


def _check_kind(given: Mapping[str, Any]) -> None:
    diffrax = import_module("diffrax")
    if not isinstance(given["terms"], diffrax.ODETerm):
        raise AuditError(f"only ODEs can be audited, but diffrax was given a {type(given['terms']).__name__}")
    if given["event"] is not None or given["discrete_terminating_event"] is not None:
        raise AuditError(
            "this model solves until an event: when that happens depends on the solver itself, so it cannot be audited"
        )


def _check_double(state: Any, double: bool) -> None:
    for leaf in import_module("jax").tree_util.tree_leaves(state):
        if double and np.result_type(leaf) != np.float64:
            raise DoublePrecisionError(f"a solve starts from {np.result_type(leaf)} although all inputs are in float64")


def _number(value: Any, name: str) -> float:
    """A number that is known while the model is traced."""
    try:
        return float(value)
    except (TypeError, RuntimeError) as error:
        raise AuditError(
            f"{name} is computed inside a compiled function, so it cannot be read off: give it to diffeqsolve as a "
            "plain number, or audit a predict(x, solver) with trained_with=..."
        ) from error
