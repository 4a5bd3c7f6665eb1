"""Solvers are values: equal, hashable, made anew at another precision, and written as plain numbers."""

import json
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
import torch

from windermere.errors import StepBudgetError, UnknownNameError, UsageError
from windermere.solvers import METHODS, Adaptive, FixedStep, OnGrid, Solver, solver_from_dict, solver_to_dict

SOLVERS: list[Solver] = [
    FixedStep("euler", step=1 / 64),
    FixedStep("rk4", step=0.3),
    OnGrid("heun", (0, 0.25, 1)),
    OnGrid("euler", (2.0, 1.0, 0.5)),
    Adaptive("dopri54", tolerance=1e-4),
    Adaptive("fehlberg21", rtol=1e-3, atol=1e-6),
    Adaptive("tsit54", rtol=0.0, atol=1e-6, control="sample", max_steps=77),
    Adaptive("bosh32", rtol=1e-3, atol=0.0),
]
EVERY = pytest.mark.parametrize("solver", SOLVERS, ids=str)


@EVERY
def test_a_solver_survives_the_way_through_json_and_equal_ones_have_equal_hashes(solver: Solver) -> None:
    twin = solver_from_dict(json.loads(json.dumps(solver_to_dict(solver))))
    assert twin == solver
    assert hash(twin) == hash(solver)
    assert solver.with_precision(solver.precision / 2) != solver


def test_all_these_solvers_are_different() -> None:
    assert len(set(SOLVERS)) == len(SOLVERS)


@EVERY
def test_a_solver_cannot_be_changed(solver: Solver) -> None:
    with pytest.raises(FrozenInstanceError):
        solver.method = "rk4"  # type: ignore[misc]


@EVERY
def test_with_precision_changes_the_precision_and_nothing_else(solver: Solver) -> None:
    for factor in (1, 1 / 2, 1 / 3, 1 / 10):
        finer = solver.with_precision(solver.precision * factor)
        assert finer.precision == pytest.approx(solver.precision * factor, rel=1e-12)
        assert (type(finer), finer.method, finer.order) == (type(solver), solver.method, solver.order)
    assert solver.with_precision(solver.precision) == solver


def test_both_tolerances_are_scaled_and_the_rest_is_kept() -> None:
    solver = Adaptive("tsit54", rtol=1e-3, atol=1e-6, control="sample", max_steps=9).with_precision(1e-5)
    assert solver.rtol == pytest.approx(1e-5)
    assert solver.atol == pytest.approx(1e-8)
    assert (solver.control, solver.max_steps) == ("sample", 9)
    assert replace(solver, control="batch").rtol == solver.rtol


def test_scaled_tolerances_have_no_rounding_noise() -> None:
    """3e-4 times 1e-3 / 3e-4 is not 1e-3 in floating point."""
    same = Adaptive("dopri54", tolerance=3e-4).with_precision(1e-3)
    assert (same.rtol, same.atol) == (1e-3, 1e-3)
    mixed = Adaptive("dopri54", rtol=1e-4, atol=1e-6).with_precision(1e-6)
    assert (mixed.rtol, mixed.atol) == (1e-6, 1e-8)


@pytest.mark.parametrize("steps", [3, 10, 49, 64, 100, 1000])
@pytest.mark.parametrize("start", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_precision_of_equal_steps_is_their_length_however_the_times_are_rounded(
    start: float, steps: int, dtype: Any
) -> None:
    times = np.linspace(start, start + 1, steps + 1, dtype=dtype)
    assert OnGrid("euler", tuple(times.tolist())).precision == 1 / steps


def test_a_grid_of_unequal_steps_has_the_precision_of_its_longest() -> None:
    assert OnGrid("euler", (0.0, 0.1234567890123, 0.2, 0.25)).precision == 0.1234567890123
    assert OnGrid("euler", (0.0, 0.375, 0.5)).precision == 0.375


def test_a_purely_absolute_tolerance_is_the_precision() -> None:
    assert Adaptive("tsit54", rtol=0, atol=1e-6).precision == 1e-6
    assert Adaptive("tsit54", rtol=0, atol=1e-6).with_precision(1e-7).rtol == 0


@pytest.mark.parametrize("factor", [0.5, 0.7, 2.0, 1.3, 100.0])
def test_a_grid_made_finer_or_coarser_keeps_its_ends_its_direction_and_its_bound(factor: float) -> None:
    for times in [(0.0, 0.1, 0.4, 1.0), (1.0, 0.4, 0.1, 0.0)]:
        grid = OnGrid("euler", times)
        other = grid.with_precision(grid.precision * factor)
        assert (other.times[0], other.times[-1]) == (times[0], times[-1])
        assert other.precision <= grid.precision * max(factor, 1) * (1 + 1e-9)
        assert other.precision <= grid.precision * factor * (1 + 1e-5) or len(other.times) == 2


def test_a_grid_made_twice_as_fine_halves_every_step() -> None:
    assert OnGrid("euler", (0, 0.2, 1)).with_precision(0.4).times == pytest.approx((0, 0.1, 0.2, 0.6, 1))


def test_a_grid_made_thrice_as_fine_has_thrice_the_steps_whatever_the_rounding() -> None:
    for steps in range(1, 40):
        grid = OnGrid("euler", tuple(np.linspace(0, 1, steps + 1).tolist()))
        assert len(grid.with_precision(grid.precision * (1 / 3)).times) == 3 * steps + 1


def test_the_order_is_the_methods() -> None:
    assert [FixedStep(name, step=1).order for name in METHODS] == [t.order for t in METHODS.values()]


def test_so_many_steps_over_a_span_are_steps_of_their_share() -> None:
    assert FixedStep.of("euler", steps=64) == FixedStep("euler", step=1 / 64)
    assert FixedStep.of("euler", steps=64, span=3.0).nodes(0, 3).shape == (65,)


@pytest.mark.parametrize(
    ("solver", "text"),
    [
        (FixedStep("euler", step=1 / 64), "euler, h = 1/64"),
        (FixedStep("rk4", step=float(np.float32(1 / 49))), "rk4, h = 1/49"),
        (FixedStep("rk4", step=0.3), "rk4, h = 0.3"),
        (FixedStep("rk4", step=1e-300), "rk4, h = 1e-300"),
        (OnGrid("heun", (0, 0.5, 1)), "heun on a grid of 2 steps"),
        (OnGrid("heun", (0, 1)), "heun on a grid of 1 step"),
        (Adaptive("dopri54", tolerance=1e-4), "dopri54, tol = 0.0001"),
        (Adaptive("dopri54", tolerance=1e-4, control="sample"), "dopri54, tol = 0.0001, by sample"),
        (Adaptive("dopri54", rtol=1e-4, atol=1e-5), "dopri54, rtol = 0.0001, atol = 1e-05"),
    ],
)
def test_a_solver_reads_as_a_person_would_say_it(solver: Solver, text: str) -> None:
    assert str(solver) == text


@pytest.mark.parametrize("step", [0, -0.5, float("nan"), float("inf"), None, "fine", 10**400, torch.ones(2)])
def test_a_step_that_is_not_a_positive_number_is_refused(step: Any) -> None:
    with pytest.raises(UsageError, match="the step must be"):
        FixedStep("euler", step=step)
    with pytest.raises(UsageError, match="the step must be"):
        FixedStep("euler", step=1).with_precision(step)
    with pytest.raises(UsageError, match="the tolerance must be"):
        Adaptive("dopri54", tolerance=1).with_precision(step)
    with pytest.raises(UsageError, match="the precision must be"):
        OnGrid("euler", (0, 1)).with_precision(step)


@pytest.mark.parametrize("steps", [0, -3, 2.5, float("nan"), float("inf"), None])
def test_a_number_of_steps_that_is_not_a_positive_whole_is_refused(steps: Any) -> None:
    with pytest.raises(UsageError, match="a whole number of steps, at least 1"):
        FixedStep.of("euler", steps=steps)


@pytest.mark.parametrize("span", [0, -1.0, None, "1 s", [1.0]])
def test_the_span_of_so_many_steps_is_a_positive_number(span: Any) -> None:
    with pytest.raises(UsageError, match="the span must be"):
        FixedStep.of("euler", steps=4, span=span)


@pytest.mark.parametrize("method", [["euler"], {"euler"}, {}, np.ones(2)], ids=str)
@pytest.mark.parametrize("make", [lambda m: FixedStep(m, step=1), lambda m: OnGrid(m, (0, 1))], ids=["step", "grid"])
def test_a_method_is_a_name(make: Any, method: Any) -> None:
    with pytest.raises(UnknownNameError, match="there is no method"):
        make(method)


def test_a_grid_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(StepBudgetError, match=r"a grid of 1e\+12 steps is too long"):
        OnGrid("euler", (0.0, 1.0)).with_precision(1e-12)


@pytest.mark.parametrize("tolerance", [0, -1e-3, float("nan"), float("inf"), "tight"])
def test_a_tolerance_that_is_not_a_positive_number_is_refused(tolerance: Any) -> None:
    with pytest.raises(UsageError, match="the tolerance must be"):
        Adaptive("dopri54", tolerance=tolerance)


@pytest.mark.parametrize(
    ("tolerances", "sentence"),
    [
        ({}, "either tolerance, or both rtol and atol"),
        ({"tolerance": 1e-3, "rtol": 1e-3}, "either tolerance, or both rtol and atol"),
        ({"tolerance": 1e-3, "rtol": 1e-3, "atol": 1e-3}, "either tolerance, or both rtol and atol"),
        ({"rtol": 1e-3}, "either tolerance, or both rtol and atol"),
        ({"atol": 1e-3}, "either tolerance, or both rtol and atol"),
        ({"rtol": -1e-3, "atol": 1e-3}, "finite and not negative"),
        ({"rtol": -1, "atol": 1e-3}, "finite and not negative"),
        ({"rtol": np.ones(2), "atol": 1e-3}, "the rtol must be a number"),
        ({"rtol": float("nan"), "atol": 1e-3}, "finite and not negative"),
        ({"rtol": 1e-3, "atol": float("inf")}, "finite and not negative"),
        ({"rtol": 0.0, "atol": 0.0}, "finite and not negative"),
        ({"rtol": "tight", "atol": 1e-3}, "rtol must be a number, not 'tight'"),
    ],
)
def test_tolerances_that_say_too_little_or_too_much_are_refused(tolerances: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Adaptive("dopri54", **tolerances)


def test_a_method_without_an_error_estimate_cannot_be_adaptive() -> None:
    with pytest.raises(UsageError, match="'heun' has no error estimate: give it a step"):
        Adaptive("heun", tolerance=1e-3)


def test_an_unknown_control_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="no error control 'sampel': did you mean 'sample'"):
        Adaptive("dopri54", tolerance=1e-3, control="sampel")  # type: ignore[arg-type]


@pytest.mark.parametrize("budget", [0, -1, 2.5, None, "many"])
def test_a_step_budget_that_is_not_a_positive_whole_number_is_refused(budget: Any) -> None:
    with pytest.raises(UsageError, match="max_steps must be a whole number, at least 1"):
        Adaptive("dopri54", tolerance=1e-3, max_steps=budget)


@pytest.mark.parametrize(
    "times", [(), (0,), (0, 1, 0.5), (0, 0, 1), (0, float("nan")), (0, float("inf")), ("a", "b"), 1]
)
def test_a_grid_that_is_not_monotone_is_refused(times: Any) -> None:
    with pytest.raises(UsageError, match="times must be"):
        OnGrid("euler", times)


@pytest.mark.parametrize("make", [FixedStep, OnGrid, Adaptive])
def test_an_unknown_method_is_refused_when_the_solver_is_made(make: Any) -> None:
    rests: dict[Any, dict[str, Any]] = {FixedStep: {"step": 1}, OnGrid: {"times": (0, 1)}, Adaptive: {"tolerance": 1}}
    with pytest.raises(UnknownNameError, match="did you mean 'dopri54'"):
        make("dopri5", **rests[make])


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"method": "euler", "step": 1.0}, "no kind of solver 'None'"),
        ({"kind": "Fixed", "method": "euler", "step": 1.0}, "did you mean 'FixedStep'"),
        ({"kind": "FixedStep", "method": "euler"}, "do not make a FixedStep"),
        ({"kind": "FixedStep", "method": "euler", "step": 1.0, "colour": 2}, "do not make a FixedStep"),
        ({"kind": "FixedStep", "step": 1.0}, "no method 'None'"),
        ({"kind": "FixedStep", "method": "euler", "step": -1.0}, "must be positive"),
    ],
)
def test_values_that_make_no_solver_are_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        solver_from_dict(values)
