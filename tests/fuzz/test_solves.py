"""Whatever is asked of a solve: fast paths and the slow walk agree, or both refuse it in a sentence of one kind."""

from typing import Any

import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import nn

from tests.fast.fields import Embedded, Pieces, Squashed
from tests.fuzz.judging import assert_alike, outcome, parts_of
from tests.fuzz.profiles import examples
from tests.fuzz.strategies import Recipe, adaptive_solvers, fixed_solvers, mostly, problems, times
from windermere.errors import WindermereError
from windermere.solvers import Adaptive, Solution, fast_paths, solve

ROUNDING = {torch.float64: 1e-10, torch.float32: 2e-4}
OF_ONE_TIME = (Embedded, Squashed)
"""Fields that take no column of times, as samples with steps of their own have them."""
options = st.fixed_dictionaries(
    {"record": st.booleans(), "interpolate": st.sampled_from([None, True, False])},
    optional={"gradient": mostly(st.sampled_from(["backprop", "checkpoint", "adjoint"]))},
)


def both(problem: tuple[Any, Any], solver: Recipe, at: Any, named: dict[str, Any]) -> tuple[Any, Any]:
    """By the fast paths, and by the walk."""
    field, z = problem

    def by(fast: bool) -> Any:
        with fast_paths(fast):
            return outcome(lambda: solve(field, z, solver.made(), at, **named))

    return by(True), by(False)


def rounding_of(solution: Solution[Any]) -> tuple[float, float]:
    """What two ways to compute the same may differ by, relative and absolute."""
    (first, *_) = parts_of(solution.states)
    largest = max(float(part.detach().abs().max()) for part in parts_of(solution.states))
    return ROUNDING[first.dtype], ROUNDING[first.dtype] * largest


@examples("fixed")
@given(problem=problems(), solver=fixed_solvers(), at=times, named=options)
def test_fixed_steps_are_the_same_by_every_path(problem: Any, solver: Recipe, at: Any, named: dict[str, Any]) -> None:
    fast, slow = both(problem, solver, at, named)
    assert type(fast) is type(slow), (fast, slow)
    if isinstance(slow, WindermereError):
        return
    rtol, atol = rounding_of(slow)
    assert fast.stats == slow.stats
    assert_alike(fast.states, slow.states, rtol=rtol, atol=atol)
    assert_alike(fast.final, slow.final, rtol=rtol, atol=atol)
    assert (fast.trajectory is None) == (slow.trajectory is None)
    if slow.trajectory is not None:
        assert fast.trajectory.times.tolist() == slow.trajectory.times.tolist()
        assert_alike(fast.trajectory.states, slow.trajectory.states, rtol=rtol, atol=atol)


def at_a_jump() -> tuple[Any, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        field = Pieces().double()
    return field, torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@examples("adaptive")
@given(problem=problems(), solver=adaptive_solvers(), at=times, named=options)
@example(
    problem=at_a_jump(),
    solver=Recipe(Adaptive, ("dopri54",), {"rtol": 1e-7, "atol": 1e-8, "control": "batch", "max_steps": 400}),
    at=None,
    named={"record": False, "interpolate": None},
)
def test_adaptive_steps_are_the_same_by_every_path(
    problem: Any, solver: Recipe, at: Any, named: dict[str, Any]
) -> None:
    """Where rounding decides whether a step is accepted, both are as near as their tolerance has them: so it does where
    more steps are rejected than accepted, at jumps of the field, though counts be the same."""
    assume(solver.named["control"] == "batch" or not isinstance(problem[0], OF_ONE_TIME))
    fast, slow = both(problem, solver, at, named)
    assert type(fast) is type(slow), (fast, slow)
    if isinstance(slow, WindermereError):
        return
    rtol, atol = rounding_of(slow)
    own = solver.made()
    stats = slow.stats
    if not same_counts(fast, slow) or bool(torch.as_tensor(stats.rejected > stats.accepted).any()):
        rtol, atol = rtol + 100 * own.rtol, atol + 100 * (own.atol + own.rtol)
    else:
        rtol, atol = rtol + own.rtol, atol + own.atol  # steps follow from error estimates, which are rounded too
    assert_alike(fast.states, slow.states, rtol=rtol, atol=atol)


def same_counts(one: Solution[Any], other: Solution[Any]) -> bool:
    names = ("evaluations", "accepted", "rejected")
    pairs = [(torch.as_tensor(getattr(one.stats, n)), torch.as_tensor(getattr(other.stats, n))) for n in names]
    return all(torch.equal(a, b) for a, b in pairs)


@examples("gradients")
@given(problem=problems(), solver=fixed_solvers(), gradient=st.sampled_from(["backprop", "checkpoint", "adjoint"]))
def test_gradients_are_the_same_by_every_path(problem: Any, solver: Recipe, gradient: Any) -> None:
    field, z = problem
    assume(all(float(part.abs().max()) < 1e3 for part in parts_of(z)))  # else a sine is one of rounding
    starts = tuple(part.requires_grad_() for part in parts_of(z))
    start: Any = starts if isinstance(z, tuple) else starts[0]
    leaves = [*starts, *(field.parameters() if isinstance(field, nn.Module) else ())]

    def by(fast: bool) -> Any:
        def call() -> Any:
            with fast_paths(fast):
                found = solve(field, start, solver.made(), gradient=gradient)
                total = torch.stack([part.square().sum() for part in parts_of(found.final)]).sum()
                return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)

        return outcome(call)

    fast, slow = by(True), by(False)
    assert type(fast) is type(slow), (fast, slow)
    if isinstance(slow, WindermereError):
        return
    largest = max(float(part.abs().max()) for part in slow)
    rounding = 10 * ROUNDING[slow[0].dtype]
    assert_alike(fast, slow, rtol=rounding, atol=rounding * largest)
