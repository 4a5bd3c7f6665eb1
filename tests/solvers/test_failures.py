"""Every failure is one of `windermere.errors`, with a sentence that says what, where and what to do."""

import gc
import weakref
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.solvers.fields import DOUBLE, coupled, elementwise, some_states
from windermere import errors
from windermere.errors import (
    FieldError,
    NonFiniteError,
    StepBudgetError,
    ToleranceError,
    UsageError,
    VanishingStepError,
)
from windermere.solvers import Adaptive, FixedStep, adaptive_names, solve

FIXED = FixedStep("rk4", step=1 / 10)
DOPRI = Adaptive("dopri54", tolerance=1e-4)
BY_SAMPLE = Adaptive("dopri54", tolerance=1e-4, control="sample")
EVERY = pytest.mark.parametrize("solver", [FIXED, DOPRI, BY_SAMPLE], ids=["fixed", "batch", "sample"])


def from_then_on(moment: float, bad: list[bool]) -> Any:
    """A field that is not a number for some samples from a moment on."""

    def field(t: Tensor, z: Tensor) -> Tensor:
        return torch.where((t >= moment) & torch.tensor(bad)[:, None], torch.nan, -z)

    return field


@EVERY
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_field_that_is_not_finite_from_the_start_is_named_with_time_and_samples(solver: Any, value: float) -> None:
    def field(t: Tensor, z: Tensor) -> Tensor:
        return torch.where(torch.tensor([[True], [False], [True]]), value, z)

    with pytest.raises(
        NonFiniteError, match=r"^the field is not finite at t = 0\.25 for 2 of 3 samples: take a smaller"
    ):
        solve(field, torch.ones(3, 2), solver, (0.25, 1.0))


@EVERY
def test_a_field_that_stops_being_finite_midway_is_named_with_time_and_samples(solver: Any) -> None:
    with pytest.raises(NonFiniteError, match=r"the field is not finite at t = 0\.(5|4999\d*) for 1 of 3 samples"):
        solve(from_then_on(0.5, [False, True, False]), torch.ones(3, 2), solver)


@EVERY
def test_backwards_in_time_the_moment_is_named_too(solver: Any) -> None:
    def field(t: Tensor, z: Tensor) -> Tensor:
        return torch.where(t <= 0.5, torch.nan, -z)

    with pytest.raises(NonFiniteError, match=r"the field is not finite at t = 0\.50*\d* for 3 of 3 samples"):
        solve(field, torch.ones(3, 2), solver, (1.0, 0.0))


def test_a_state_that_overflows_between_finite_rates_is_named() -> None:
    with pytest.raises(NonFiniteError, match=r"the state is not finite at t = 1 for 2 of 2 samples"):
        solve(lambda t, z: torch.full_like(z, 3e38), torch.full((2, 1), 3e38), FixedStep("euler", step=1.0))


def test_samples_are_counted_over_members_too() -> None:
    def field(t: Tensor, z: Tensor) -> Tensor:
        return torch.where(z > 1, torch.nan, z)

    z = torch.zeros(2, 5, 3)
    z[0, 1, 2] = z[1, 0, 0] = z[1, 4, 0] = z[1, 4, 1] = 2.0
    for solvers in ([FIXED] * 2, [FIXED, FixedStep("rk4", step=1 / 3)], [DOPRI] * 2, [BY_SAMPLE] * 2):
        with pytest.raises(NonFiniteError, match=r"at t = 0 for 3 of 10 samples"):
            solve(field, z, solvers)


@EVERY
def test_an_initial_state_that_is_not_finite_is_blamed_and_not_the_field(solver: Any) -> None:
    z = torch.ones(3, 2)
    z[1, 0] = torch.inf
    with pytest.raises(NonFiniteError, match=r"^the initial state is not finite at t = 0 for 1 of 3 samples: look at"):
        solve(lambda t, z: torch.tanh(z), z, solver)


def test_a_field_that_fails_once_and_not_again_is_called_what_it_is() -> None:
    calls = 0

    def field(t: Tensor, z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return z * (torch.nan if calls == 3 else 1.0)

    with pytest.raises(NonFiniteError, match="not deterministic"):
        solve(field, torch.ones(2), FIXED)


def test_a_passing_overflow_inside_a_trial_step_is_only_a_rejection() -> None:
    """exp overflows float32 at the end of a step that is far too long; a shorter one is fine."""
    solution = solve(
        lambda t, z: torch.exp(100 * t) * 1e-3 + 0 * z, torch.ones(1), Adaptive("bosh32", tolerance=1e-3), (0.0, 0.88)
    )
    assert isinstance(solution.final, Tensor)
    assert solution.final.isfinite().all()


@pytest.mark.parametrize("method", adaptive_names())
def test_a_spent_budget_says_how_far_it_came(method: str) -> None:
    solver = Adaptive(method, tolerance=1e-5, max_steps=6)
    sentence = (
        rf"^6 steps \(\d of them rejected\) .* only to t = [0-6]\.\d+ on its way to 7,.*{method}.*raise max_steps"
    )
    with pytest.raises(StepBudgetError, match=sentence):
        solve(coupled, some_states(3, 2), solver, (0.0, 7.0))


def test_a_budget_spent_on_landings_is_not_blamed_on_the_tolerance() -> None:
    times = np.linspace(0, 1, 101).tolist()
    solver = Adaptive("dopri54", tolerance=1e-3, max_steps=50)
    for ways in (times, times[::-1]):
        with pytest.raises(
            StepBudgetError, match=r"(49|50) of them only landed on times asked for, so raise max_steps"
        ):
            solve(elementwise, some_states(3, 2), solver, ways, interpolate=False)
    tight = Adaptive("dopri54", tolerance=1e-9, max_steps=10)
    with pytest.raises(StepBudgetError, match="loosen the tolerance"):
        solve(coupled, some_states(3, 2), tight, (0.0, 0.05, 7.0), interpolate=False)


def test_a_budget_is_enough_if_the_last_step_lands() -> None:
    z = some_states(3, 2)
    stats = solve(coupled, z, DOPRI).stats
    tried = int(np.asarray(stats.accepted)) + int(np.asarray(stats.rejected))
    assert solve(coupled, z, Adaptive("dopri54", tolerance=1e-4, max_steps=tried)).stats == stats
    with pytest.raises(StepBudgetError):
        solve(coupled, z, Adaptive("dopri54", tolerance=1e-4, max_steps=tried - 1))


def test_a_budget_holds_for_each_group() -> None:
    """The wild sample alone is over it."""
    z = torch.tensor([[0.1], [30.0]], dtype=DOUBLE)
    solver = Adaptive("dopri54", tolerance=1e-6, control="sample", max_steps=12)
    solve(elementwise, z[:1], solver)
    with pytest.raises(StepBudgetError, match="12 steps"):
        solve(elementwise, z, solver)


@pytest.mark.parametrize("tolerance", [1e-7, 1e-9])
def test_a_tolerance_that_float32_cannot_resolve_is_refused_and_float64_can(tolerance: float) -> None:
    z = 1 + some_states(3, 2).abs()
    solver = Adaptive("dopri54", tolerance=tolerance)
    with pytest.raises(
        ToleranceError, match=rf"float32 cannot resolve dopri54, tol = {tolerance:.3g}:.*solve in float64"
    ):
        solve(coupled, z.float(), solver)
    assert solve(coupled, z, solver).stats.accepted


def test_a_tolerance_that_float64_cannot_resolve_is_refused() -> None:
    with pytest.raises(ToleranceError, match="float64 cannot resolve"):
        solve(coupled, some_states(3, 2), Adaptive("dopri54", tolerance=1e-17))


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_a_relative_tolerance_of_an_entry_that_is_0_is_the_tolerances_fault_and_not_the_fields(control: Any) -> None:
    z = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    solver = Adaptive("dopri54", rtol=1e-3, atol=0, control=control)
    with pytest.raises(ToleranceError, match=r"rtol = 0.001, atol = 0.*: give an atol above 0"):
        solve(elementwise, z, solver)
    absolute = Adaptive("dopri54", rtol=1e-3, atol=1e-3, control=control)
    with pytest.raises(ToleranceError, match="give an atol above 0"):
        solve(elementwise, z[:, None], [replace(s, control="batch") for s in (absolute, solver)])
    solve(elementwise, z[:1], solver)


def test_the_member_whose_tolerance_cannot_be_resolved_is_the_one_named() -> None:
    solvers = [Adaptive("dopri54", tolerance=tol) for tol in (1e-3, 1e-8)]
    with pytest.raises(ToleranceError, match=r"tol = 1e-08"):
        solve(elementwise, torch.ones(2, 3), solvers)


@pytest.mark.parametrize("method", adaptive_names())
def test_a_solution_that_blows_up_in_finite_time_is_an_error_near_that_time(method: str) -> None:
    """dz/dt = z^2 from 1 is 1/(1 - t)."""
    with pytest.raises(errors.SolverError, match=r"t = (0\.99|1[^\d]|1\.00)"):
        solve(lambda t, z: z * z, torch.ones(2, 1, dtype=DOUBLE), Adaptive(method, tolerance=1e-3), (0.0, 2.0))


def chatter(t: Tensor, z: Tensor) -> Tensor:
    """Falls to zero, and there jumps to and fro."""
    return -torch.sign(z)


def test_a_step_that_vanishes_is_named_with_the_time_the_tolerance_and_the_groups() -> None:
    z = torch.tensor([[0.01], [0.02], [0.015]], dtype=DOUBLE)
    solver = Adaptive("dopri54", rtol=0.0, atol=1e-17, control="sample")
    with pytest.raises(
        VanishingStepError, match=r"^at t = 0\.0(1|15|2) the step shrank below 2e-15 with dopri54.* for 1 of 3 groups"
    ):
        solve(chatter, z, solver)


def test_chatter_that_the_tolerance_lets_pass_spends_the_budget() -> None:
    with pytest.raises(StepBudgetError, match=r"only to t = 0\.50"):
        solve(chatter, torch.full((1,), 0.5, dtype=DOUBLE), Adaptive("bosh32", tolerance=1e-6, max_steps=300))


def test_a_step_below_the_rounding_of_time_itself_vanishes() -> None:
    """At t = 1e9 the next double is 1e-7 away: a step of less would not advance."""
    with pytest.raises(VanishingStepError, match=r"the step shrank below 2e-06"):
        solve(lambda t, z: 1e9 * torch.cos(1e9 * (t - 1e9)) + 0 * z, torch.ones(1, dtype=DOUBLE), DOPRI, (1e9, 1e9 + 1))


def test_every_error_of_a_solve_is_one_of_ours_and_of_the_builtin_kind_that_fits() -> None:
    for kind in (FieldError, NonFiniteError, StepBudgetError, ToleranceError, VanishingStepError):
        assert issubclass(kind, errors.SolverError)
        assert issubclass(kind, ArithmeticError)
    assert issubclass(UsageError, ValueError)


def test_an_exception_inside_the_field_comes_out_as_it_is() -> None:
    def field(t: Tensor, z: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        solve(field, torch.ones(2), FIXED)


@EVERY
@pytest.mark.parametrize("moment", [0.0, 0.5])
def test_a_solve_that_failed_leaves_nothing_to_the_collector(solver: Any, moment: float) -> None:
    z = some_states(3, 2)
    held = weakref.ref(z)
    gc.disable()
    try:
        with suppress(NonFiniteError):
            solve(from_then_on(moment, [True] * 3), z, solver)
        del z
        assert held() is None
    finally:
        gc.enable()
