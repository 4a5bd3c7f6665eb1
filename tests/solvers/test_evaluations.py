"""How often, and where, a solve evaluates the field: what it says against what the field saw."""

import pytest
import torch
from torch import Tensor

from tests.solvers.fields import DOUBLE, Recorder, coupled, some_states
from windermere.solvers import METHODS, Adaptive, FixedStep, adaptive_names, solve

PROPAGATING = {
    "euler": 1,
    "midpoint": 2,
    "heun": 2,
    "heun3": 3,
    "rk4": 4,
    "rk4_38": 4,
    "fehlberg21": 3,
    "heun21": 2,
    "bosh32": 3,
    "dopri54": 6,
    "tsit54": 6,
}
"""Stages that a fixed step needs: without those that serve the error estimate alone."""


def line(t: Tensor, z: Tensor) -> Tensor:
    return torch.ones_like(z)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("steps", [1, 5])
def test_a_fixed_step_evaluates_only_the_stages_that_propagate(method: str, steps: int) -> None:
    field = Recorder(coupled)
    solution = solve(field, some_states(3, 2), FixedStep.of(method, steps=steps))
    assert field.calls == solution.stats.evaluations == steps * PROPAGATING[method]
    assert (solution.stats.accepted, solution.stats.rejected) == (steps, 0)


@pytest.mark.parametrize("method", adaptive_names())
@pytest.mark.parametrize("control", ["batch", "sample"])
def test_an_adaptive_solve_evaluates_twice_at_the_start_and_then_its_stages_less_the_known_ones(
    method: str, control: str
) -> None:
    field = Recorder(coupled)
    solver = Adaptive(method, tolerance=3e-4, control=control)  # type: ignore[arg-type]
    stats = solve(field, some_states(1, 2), solver, (0.0, 20.0)).stats
    accepted, rejected = (int(torch.as_tensor(n).max()) for n in (stats.accepted, stats.rejected))
    assert rejected > 0
    table = METHODS[method]
    tries = accepted + rejected
    # Without FSAL the first stage is known at the start and after a rejection only.
    expected = 2 + tries * (table.stages - 1) + (0 if table.fsal else accepted - 1)
    assert field.calls == int(torch.as_tensor(stats.evaluations).max()) == expected


@pytest.mark.parametrize(
    ("method", "a_try"), [("dopri54", 6), ("tsit54", 6), ("bosh32", 3), ("fehlberg21", 2), ("heun21", 1)]
)
def test_a_step_that_lands_at_once_costs_the_start_and_one_try(method: str, a_try: int) -> None:
    stats = solve(line, torch.ones(2, 1), Adaptive(method, tolerance=10.0), (0.0, 0.4)).stats
    assert (stats.accepted, stats.rejected, stats.evaluations) == (1, 0, 2 + a_try)


def test_fehlberg21_takes_three_evaluations_a_step_for_its_last_stage_is_not_the_next_ones_first() -> None:
    field = Recorder(coupled)
    solution = solve(field, some_states(4, 2), Adaptive("fehlberg21", tolerance=1e-2), record=True)
    stats = solution.stats
    assert stats.rejected == 0
    assert isinstance(stats.accepted, int)
    assert field.calls == stats.evaluations == 2 + 2 + 3 * (stats.accepted - 1)
    assert solution.trajectory is not None
    starts = [float(t) for t, _ in field.nodes[4::3]]
    assert starts == pytest.approx(solution.trajectory.times[1:-1])


def nodes(field: Recorder) -> list[tuple[float, float]]:
    return [(float(t), float(z)) for t, z in field.nodes]


def test_one_step_of_rk4_is_evaluated_at_kuttas_nodes() -> None:
    field = Recorder(lambda t, z: t + z)
    solve(field, torch.tensor([2.0], dtype=DOUBLE), FixedStep("rk4", step=0.5), (1.0, 1.5))
    k0 = 1 + 2.0
    k1 = 1.25 + (2 + 0.25 * k0)
    k2 = 1.25 + (2 + 0.25 * k1)
    assert nodes(field) == [(1, 2), (1.25, 2 + 0.25 * k0), (1.25, 2 + 0.25 * k1), (1.5, 2 + 0.5 * k2)]


def test_one_step_of_dopri54_is_evaluated_at_dormand_and_princes_nodes() -> None:
    field = Recorder(lambda t, z: t + z)
    solution = solve(field, torch.tensor([2.0], dtype=DOUBLE), Adaptive("dopri54", tolerance=10.0), (1.0, 1.5))
    assert solution.stats.accepted == 1
    start, probe, *rest = nodes(field)
    assert start == (1.0, 2.0)
    assert probe == pytest.approx((1 + 0.01 * 2 / 3, 2 + 0.01 * 2))  # h0 = 0.01 |z| / |f|
    table, h, rates = METHODS["dopri54"], 0.5, [3.0]
    for (t, z), row, c in zip(rest, table.a[1:], table.c[1:], strict=True):
        assert t == pytest.approx(1 + c * h, rel=1e-15)
        assert z == pytest.approx(2 + h * sum(a * k for a, k in zip(row, rates, strict=True)), rel=1e-14)
        rates.append(t + z)
    assert rest[-1][0] == 1.5
    assert float(solution.final) == pytest.approx(rest[-1][1], rel=1e-15)


def test_the_second_step_of_an_fsal_method_begins_with_the_stage_that_ended_the_first() -> None:
    field = Recorder(coupled)
    solution = solve(field, some_states(3, 2), Adaptive("dopri54", tolerance=1e-2), record=True)
    assert (solution.stats.accepted, solution.stats.rejected) == (2, 0)
    assert solution.trajectory is not None
    assert isinstance(solution.trajectory.states, Tensor)
    (t_last, z_last), (t_next, _) = field.nodes[2 + 5], field.nodes[2 + 6]
    assert float(t_last) == solution.trajectory.times[1]
    assert torch.equal(z_last, solution.trajectory.states[1])
    h = 1 - float(t_last)
    assert float(t_next) == pytest.approx(float(t_last) + h / 5)


@pytest.mark.parametrize("groups", [False, True])
def test_the_field_sees_its_time_in_the_states_dtype_and_broadcasting_against_it(groups: bool) -> None:
    field = Recorder(coupled)
    solver = Adaptive("bosh32", tolerance=1e-3, control="sample" if groups else "batch")
    solve(field, some_states(4, 2, dtype=torch.float32), solver)
    assert {t.dtype for t, _ in field.nodes} == {torch.float32}
    assert {tuple(t.shape) for t, _ in field.nodes} == {(4, 1) if groups else ()}
