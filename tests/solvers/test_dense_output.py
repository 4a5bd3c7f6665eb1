"""States between steps: interpolated by the method's continuous extension, at its own order, and at no further cost."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from tests.solvers.fields import DOUBLE, Network, Recorder, coupled, elementwise, some_states
from tests.solvers.test_gradients import ADAPTIVE, FIXED, gentle, loss_of, named
from tests.solvers.test_order import SPAN, STEPS, observed_order
from windermere.errors import NonFiniteError, StepBudgetError, UsageError
from windermere.nn import ODEBlock
from windermere.solvers import METHODS, Adaptive, Adjoint, FixedStep, Gradient, OnGrid, Solver, Tableau, solve
from windermere.solvers.dense_output import Between

TIMES = (0.0, *(SPAN * np.sort(np.random.default_rng(0).random(37))).tolist(), SPAN)
MANY = (0.0, *np.linspace(0, SPAN, 500)[1:-1].tolist(), SPAN)
"""All fractions of a step: how they lie in it differs from one number of steps to another."""
HUNDRED = tuple(np.linspace(0, SPAN, 100).tolist())
FEW = (0.0, 0.13, 0.34, 0.35, 0.8, 1.0)
ANY: list[Solver] = [*FIXED, *ADAPTIVE]


@cache
def flow() -> Tensor:
    return states(FixedStep("tsit54", step=SPAN / 3000), MANY, interpolate=False)


def states(solver: Any, times: Any, interpolate: bool = True, start: Tensor | None = None) -> Tensor:
    z = some_states(16, 2) if start is None else start
    found = solve(coupled, z, solver, times, interpolate=interpolate).states
    assert isinstance(found, Tensor)
    return found


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda t: t.name)
def test_within_steps_the_observed_order_is_that_of_the_steps(method: Tableau) -> None:
    steps = STEPS[method.order]
    errors = [
        float((states(FixedStep.of(method.name, steps=n, span=SPAN), MANY) - flow()).square().mean().sqrt())
        for n in steps
    ]
    assert observed_order(steps, errors) == pytest.approx(method.order, abs=0.15)


@pytest.mark.parametrize("solver", ADAPTIVE, ids=named)
def test_adaptive_steps_are_those_of_a_solve_that_asks_for_the_end_alone(solver: Adaptive) -> None:
    passing, plain = Recorder(coupled), Recorder(coupled)
    z = some_states(5, 2)
    found = solve(passing, z, solver, TIMES, interpolate=True, record=True)
    wanted = solve(plain, z, solver, (0.0, SPAN), record=True)
    assert passing.times == plain.times
    assert repr(found.stats) == repr(wanted.stats)
    assert torch.equal(found.final, wanted.final)
    assert found.trajectory is not None
    assert wanted.trajectory is not None
    assert torch.equal(found.trajectory.states, wanted.trajectory.states)
    assert (found.times, len(found.states)) == (TIMES, len(TIMES))


@pytest.mark.parametrize("method", METHODS)
def test_fixed_steps_cost_no_more_except_where_the_extension_needs_the_stage_of_the_error_estimate(method: str) -> None:
    field = Recorder(coupled)
    found = solve(field, some_states(3, 2), FixedStep.of(method, steps=4, span=SPAN), TIMES, interpolate=True)
    more = method in ("bosh32", "dopri54", "tsit54")
    assert field.calls == found.stats.evaluations == 4 * (METHODS[method].propagating + more)
    assert found.stats.accepted == 4


@pytest.mark.parametrize("solver", [Adaptive("dopri54", tolerance=1e-8), Adaptive("tsit54", tolerance=1e-8)], ids=str)
def test_what_is_interpolated_is_within_a_hundred_tolerances_of_the_flow(solver: Adaptive) -> None:
    assert (states(solver, MANY) - flow()).abs().max() < 100 * solver.rtol


@pytest.mark.parametrize("solver", [*FIXED, *(s for s in ADAPTIVE if s.control == "batch")], ids=named)
def test_a_time_on_a_step_has_the_state_of_that_step(solver: Solver) -> None:
    z = some_states(2)
    trajectory = solve(elementwise, z, solver, record=True).trajectory
    assert trajectory is not None
    found = solve(elementwise, z, solver, trajectory.times.tolist(), interpolate=True)
    torch.testing.assert_close(found.states, trajectory.states, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("solver", ANY, ids=named)
def test_time_may_fall(solver: Solver) -> None:
    def mirrored(t: Tensor, z: Tensor) -> Tensor:
        return -coupled(1 - t, z)

    z, falling = some_states(3, 2), tuple(1 - t for t in FEW)
    if isinstance(solver, OnGrid):
        solver = OnGrid(solver.method, tuple(1 - t for t in solver.times))
        forward: Solver = OnGrid(solver.method, tuple(1 - t for t in solver.times))
    else:
        forward = solver
    found = solve(mirrored, z, solver, falling, interpolate=True).states
    torch.testing.assert_close(found, solve(coupled, z, forward, FEW, interpolate=True).states, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("solver", [a for a in ADAPTIVE if a.control == "sample"], ids=named)
def test_samples_with_steps_of_their_own_are_interpolated_as_if_each_were_alone(solver: Adaptive) -> None:
    z = some_states(4, 2) * torch.tensor([[0.1], [1.0], [3.0], [0.5]], dtype=DOUBLE)
    together = states(solver, TIMES, start=z)
    alone = torch.cat([states(solver, TIMES, start=z[i : i + 1]) for i in range(4)], dim=1)
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "solvers",
    [
        [FixedStep("rk4", step=SPAN / n) for n in (3, 8, 5)],
        [FixedStep("dopri54", step=SPAN / 4)] * 3,
        [Adaptive("dopri54", tolerance=t) for t in (1e-4, 1e-6, 1e-5)],
        [Adaptive("fehlberg21", tolerance=t, control="sample") for t in (1e-2, 1e-4, 1e-3)],
    ],
    ids=["rk4", "dopri54", "adaptive", "by sample"],
)
def test_members_are_interpolated_as_if_each_were_alone(solvers: list[Solver]) -> None:
    z = some_states(3, 4, 2)
    together = states(solvers, TIMES, start=z)
    alone = torch.stack([states(s, TIMES, start=z[i]) for i, s in enumerate(solvers)], dim=1)
    torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-10)


def test_every_time_is_interpolated_once_for_each_sample_however_their_steps_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, within = list[int](), Between._within
    monkeypatch.setattr(Between, "_within", lambda *given: sizes.append(np.size(given[1])) or within(*given))  # type: ignore[func-returns-value]
    z = some_states(6, 2) * torch.logspace(-1, 1, 6, dtype=DOUBLE)[:, None]
    states(Adaptive("dopri54", tolerance=1e-6, control="sample"), MANY, start=z)
    assert sum(sizes) == 6 * (len(MANY) - 2)


def test_a_time_is_passed_by_one_step_alone_on_any_scale_of_time() -> None:
    scale = 1e-200
    times: Any = np.linspace(0, scale, 6)
    found: Any = solve(
        lambda t, z: -z / scale, torch.ones(1, dtype=DOUBLE), FixedStep("rk4", step=scale / 32), times, interpolate=True
    ).states
    np.testing.assert_allclose(found[:, 0], np.exp(-times / scale), rtol=1e-7)


# ---------------------------------------------------------------------------------------------------------
# What is done unless something is said


@pytest.mark.parametrize("solver", ADAPTIVE, ids=named)
def test_adaptive_steps_interpolate_and_a_hundred_times_take_the_evaluations_of_two(solver: Adaptive) -> None:
    few, many = Recorder(coupled), Recorder(coupled)
    wanted = solve(few, some_states(5, 2), solver, (0.0, SPAN))
    found = solve(many, some_states(5, 2), solver, HUNDRED)
    assert many.times == few.times
    assert repr(found.stats) == repr(wanted.stats)
    assert torch.equal(found.states, states(solver, HUNDRED, start=some_states(5, 2)))


@pytest.mark.parametrize("solver", [FixedStep("rk4", step=0.25), OnGrid("rk4", (0, 0.3, 0.9, 1))], ids=str)
def test_fixed_steps_land_and_start_anew_from_a_time_off_their_grid(solver: FixedStep | OnGrid) -> None:
    z = some_states(3, 2)
    found, landed = (solve(coupled, z, solver, (0, 0.3, 1), record=True, interpolate=i) for i in (None, False))
    assert torch.equal(found.states, landed.states)
    assert found.trajectory is not None
    nodes = (0, 0.25, 0.3, 0.55, 0.8, 1) if isinstance(solver, FixedStep) else solver.times
    np.testing.assert_allclose(found.trajectory.times, nodes, rtol=1e-15)


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_the_gradient_of_a_hundred_times_is_that_of_finite_differences(gradient: Gradient) -> None:
    """Finite differences move the steps as well, which moves the states by less than the local error: hence tight."""
    solver, z = Adaptive("dopri54", tolerance=1e-11), some_states(2, 2).requires_grad_()
    speed = torch.tensor(0.8, dtype=DOUBLE, requires_grad=True)

    def loss(z: Tensor, speed: Tensor) -> Tensor:
        way = Adjoint(parameters=[speed]) if gradient == "adjoint" else gradient
        return loss_of(solve(gentle(speed), z, solver, HUNDRED, gradient=way).states)

    assert gradcheck(loss, (z, speed), eps=1e-5, atol=1e-5, rtol=1e-5)


# ---------------------------------------------------------------------------------------------------------
# Gradients


def gradients(solver: Any, gradient: Gradient) -> tuple[Tensor, ...]:
    field, z = Network(), some_states(3, 2).requires_grad_()
    found = solve(field, z, solver, FEW, gradient=gradient, interpolate=True).states
    return torch.autograd.grad(loss_of(found), [z, *field.parameters()])


@pytest.mark.parametrize("solver", FIXED, ids=named)
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
def test_the_gradient_of_fixed_steps_is_that_of_finite_differences(solver: Solver, gradient: Gradient) -> None:
    def all_states(z: Tensor, speed: Tensor) -> Any:
        return solve(gentle(speed), z, solver, FEW, gradient=gradient, interpolate=True).states

    assert gradcheck(
        all_states, (some_states(2, 2).requires_grad_(), torch.tensor(0.8, dtype=DOUBLE, requires_grad=True))
    )


@pytest.mark.parametrize("solver", ANY, ids=named)
def test_checkpointing_gives_the_gradient_of_backprop(solver: Solver) -> None:
    torch.testing.assert_close(gradients(solver, "checkpoint"), gradients(solver, "backprop"))


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_adaptive_gradients_come_near_those_of_the_flow_and_the_adjoints_too(control: Any) -> None:
    fine = Adaptive("dopri54", tolerance=1e-9, control=control)
    landing, z = Network(), some_states(3, 2).requires_grad_()
    states = solve(landing, z, FixedStep("tsit54", step=1e-3), FEW).states
    wanted = torch.autograd.grad(loss_of(states), [z, *landing.parameters()])
    for gradient in ("backprop", "adjoint"):
        torch.testing.assert_close(gradients(fine, gradient), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("falling", [False, True])
def test_the_adjoint_of_a_grid_that_is_interpolated_lands_on_the_times_asked_for(falling: bool) -> None:
    field, z = Network(), some_states(3, 2).requires_grad_()

    def gradient_of(solver: Solver, gradient: Gradient) -> Tensor:
        times = [1 - t if falling else t for t in FEW]
        found = solve(field, z, solver, times, gradient=gradient, interpolate=True).states
        return torch.autograd.grad(loss_of(found), z)[0]

    wanted = gradient_of(FixedStep("rk4", step=1 / 32), "backprop")
    for grid in (np.linspace(0, 1, 33), np.linspace(1, 0, 33)):
        torch.testing.assert_close(gradient_of(OnGrid("rk4", tuple(grid)), "adjoint"), wanted, rtol=1e-6, atol=1e-6)


# ---------------------------------------------------------------------------------------------------------
# Shapes, blocks, refusals


def test_states_in_parts_and_scalars_and_empty_batches_are_interpolated() -> None:
    def pair(t: Tensor, z: Any) -> Any:
        x, y = z
        return -x, y * t

    x, y = some_states(3, 2), some_states(3, 4)
    for solver in (Adaptive("dopri54", tolerance=1e-8), FixedStep("rk4", step=1 / 32)):
        parts: Any = solve(pair, (x, y), solver, FEW, interpolate=True).states
        moments = torch.tensor(FEW, dtype=DOUBLE)
        torch.testing.assert_close(parts[0], torch.exp(-moments)[:, None, None] * x, rtol=1e-6, atol=1e-6)
        assert parts[1].shape == (6, 3, 4)
        one: Any = solve(lambda t, z: -z, torch.tensor(2.0, dtype=DOUBLE), solver, FEW, interpolate=True).states
        torch.testing.assert_close(one, 2 * torch.exp(-moments), rtol=1e-6, atol=1e-6)
        none: Any = solve(coupled, some_states(0, 2), solver, FEW, interpolate=True).states
        assert none.shape == (6, 0, 2)
    members: Any = solve(
        coupled, some_states(2, 0, 2), [FixedStep("rk4", step=0.5), FixedStep("rk4", step=0.1)], FEW, interpolate=True
    ).states
    assert members.shape == (6, 2, 0, 2)


def test_a_field_that_is_not_finite_where_only_the_extension_asks_for_it_is_an_error() -> None:
    def ends(t: Tensor, z: Tensor) -> Tensor:
        return torch.where(t < 1, -z, torch.nan)

    solver = FixedStep("bosh32", step=0.25)
    assert solve(ends, some_states(3, 2), solver).final.isfinite().all()
    with pytest.raises(NonFiniteError, match="the field is not finite at t = 1 for 3 of 3 samples"):
        solve(ends, some_states(3, 2), solver, FEW, interpolate=True)


def test_times_need_not_lie_on_a_grid_that_is_interpolated() -> None:
    solver = OnGrid("rk4", (0, 0.5, 1))
    with pytest.raises(UsageError, match=r"0\.13"):
        ODEBlock(Network(), solver, times=FEW)
    block = ODEBlock(Network(), solver, times=FEW, interpolate=True)
    z = some_states(3, 2)
    assert torch.equal(block(z), solve(block.field, z, solver, FEW, interpolate=True).states)


def test_many_times_take_no_steps_of_their_own_and_a_budget_spent_on_them_says_so() -> None:
    solver = Adaptive("dopri54", tolerance=1e-5, max_steps=50)
    many = np.linspace(0, 1, 301).tolist()
    with pytest.raises(StepBudgetError, match=r"only landed on times asked for.*leave out interpolate=False"):
        solve(coupled, some_states(3, 2), solver, many, interpolate=False)
    assert len(solve(coupled, some_states(3, 2), solver, many).states) == 301


def test_a_continuous_extension_that_misses_its_end_or_its_order_is_refused() -> None:
    rk4 = METHODS["rk4"]
    with pytest.raises(UsageError, match="'rk4': the weights within a step do not end at b"):
        replace(rk4, dense=((1.0, 0.0), *((0.0, w) for w in rk4.b[1:])))
    with pytest.raises(UsageError, match="'rk4' misses order 4 within a step"):
        replace(rk4, dense_order=4)
    with pytest.raises(UsageError, match="'rk4': the weights within a step are not 4 rows of one length"):
        replace(rk4, dense=rk4.dense[:3])
    for method in METHODS.values():
        with pytest.raises(UsageError, match="misses order"):
            replace(method, dense_order=method.dense_order + 1)
