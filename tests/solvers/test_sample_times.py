"""Times of its own for each sample: each is solved as if it were alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from tests.solvers.fields import DOUBLE, Network, Recorder, coupled, elementwise, some_states
from tests.solvers.test_gradients import gentle, gradients, loss_of
from windermere.errors import NonFiniteError, StepBudgetError, UsageError, VanishingStepError
from windermere.nn import Autonomous, ODEBlock
from windermere.solvers import METHODS, Adaptive, Adjoint, FixedStep, OnGrid, adaptive_names, counting, solve
from windermere.solvers.landing import landing

ROWS = ((0.0, 0.4, 0.9, 2.0), (0.3, 1.7, 1.7, 1.7), (1.5, 1.0, 0.2, -0.4), (0.7, 0.7, 0.7, 0.7), (2.0, 2.1, 2.3, 2.3))
"""Mixed spans, a row that falls, two that are padded, and one that stays at its start."""
TIMES = torch.tensor(ROWS, dtype=DOUBLE)
SOLVERS: list[Any] = [
    *(Adaptive(name, tolerance=1e-4, control="sample") for name in adaptive_names()),
    *(FixedStep(name, step=0.25) for name in METHODS),
]
FEW: list[Any] = [Adaptive("dopri54", tolerance=1e-4, control="sample"), FixedStep("rk4", step=0.25)]
PRECISE: list[Any] = [Adaptive("dopri54", tolerance=1e-9, control="sample"), FixedStep("rk4", step=0.02)]
EVERY = pytest.mark.parametrize("solver", SOLVERS, ids=str)
ANY = pytest.mark.parametrize("solver", FEW, ids=["adaptive", "fixed"])
WAYS = pytest.mark.parametrize("interpolate", [False, True], ids=["landing", "interpolated"])
CALM, BATCH = FEW[0], Adaptive("dopri54", tolerance=1e-4)


def bounded(t: Tensor, z: Tensor) -> Tensor:
    """Either way in time, and for a state of any shape."""
    return torch.sin(2 * z + t)


def unpadded(row: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(dict.fromkeys(row))


def alone(field: Any, z: Tensor, solver: Any, row: tuple[float, ...], **options: Any) -> Any:
    """One sample's states at its times, the last one repeated; and what it cost."""
    times = unpadded(row)
    if len(times) == 1:
        return torch.stack([z] * len(row)), [0, 0, 0]
    solution: Any = solve(field, z[None], solver, times, **options)
    states = solution.states[:, 0]
    costs = [int(np.max(cost)) for cost in costs_of(solution)]
    return torch.cat([states, states[-1:].expand(len(row) - len(times), *z.shape)]), costs


def costs_of(solution: Any) -> list[Any]:
    return [solution.stats.evaluations, solution.stats.accepted, solution.stats.rejected]


@EVERY
@WAYS
def test_each_sample_is_solved_as_if_it_were_alone_with_its_own_times(solver: Any, interpolate: bool) -> None:
    z = some_states(5, 2)
    solution: Any = solve(coupled, z, solver, TIMES, interpolate=interpolate)
    assert solution.states.shape == (4, 5, 2)
    for i, row in enumerate(ROWS):
        states, costs = alone(coupled, z[i], solver, row, interpolate=interpolate)
        torch.testing.assert_close(solution.states[:, i], states, rtol=1e-12, atol=1e-12)
        if len(unpadded(row)) != 2:  # a grid alone, without times to interpolate, may be cheaper
            assert [int(cost[i]) for cost in costs_of(solution)] == costs
    assert torch.equal(solution.states[0], z)
    assert torch.equal(solution.final, solution.states[-1])


@EVERY
def test_rows_that_are_all_the_same_are_times_for_all(solver: Any) -> None:
    z, times = some_states(3, 2), (0.0, 0.4, 1.1)
    own: Any = solve(coupled, z, solver, [times] * 3)
    shared: Any = solve(coupled, z, solver, times)
    torch.testing.assert_close(own.states, shared.states, rtol=1e-13, atol=1e-13)


@ANY
@WAYS
def test_what_repeats_the_last_time_has_the_very_state_of_it(solver: Any, interpolate: bool) -> None:
    states: Any = solve(coupled, some_states(5, 2), solver, TIMES, interpolate=interpolate).states
    assert torch.equal(states[1, 1], states[3, 1])
    assert torch.equal(states[2, 1], states[3, 1])
    assert torch.equal(states[2, 4], states[3, 4])
    assert torch.equal(states[:, 3], states[:1, 3].expand(4, 2))


@ANY
@WAYS
def test_where_all_samples_repeat_a_time_there_is_a_state_for_each_repetition(solver: Any, interpolate: bool) -> None:
    z = some_states(2, 2)
    padded: Any = solve(coupled, z, solver, [(0, 1, 1, 1), (1, 0, 0, 0)], interpolate=interpolate).states
    plain: Any = solve(coupled, z, solver, [(0, 1), (1, 0)]).states
    torch.testing.assert_close(padded, plain[[0, 1, 1, 1]], rtol=1e-13, atol=1e-13)
    still: Any = solve(coupled, z, solver, [(1, 1, 1)] * 2, interpolate=interpolate).states
    assert torch.equal(still, z.expand(3, 2, 2))


@pytest.mark.parametrize("solver", [s for s in SOLVERS if isinstance(s, Adaptive)], ids=str)
def test_adaptive_solves_interpolate_unless_told_to_land(solver: Adaptive) -> None:
    z = some_states(5, 2)
    passing, ends = solve(coupled, z, solver, TIMES), solve(coupled, z, solver, TIMES[:, [0, -1]])
    assert torch.equal(passing.final, ends.final)
    assert repr(passing.stats) == repr(ends.stats)


def test_within_a_scope_of_landing_each_sample_lands_on_its_own_times() -> None:
    z = some_states(5, 2)
    with landing():
        found: Any = solve(coupled, z, CALM, TIMES, record=True)
    assert torch.equal(found.states, solve(coupled, z, CALM, TIMES, interpolate=False).states)
    for i, row in enumerate(ROWS):
        assert set(row) <= set(found.trajectory.times[:, i].tolist())


@ANY
def test_every_recorded_step_has_the_time_of_each_sample(solver: Any) -> None:
    solution: Any = solve(coupled, some_states(5, 2), solver, TIMES, record=True)
    times, states = solution.trajectory.times, solution.trajectory.states
    assert times.shape == states.shape[:2]
    assert times[0].tolist() == TIMES[:, 0].tolist()
    assert times[-1].tolist() == TIMES[:, -1].tolist()
    assert ((np.diff(times, axis=0) != 0).sum(axis=0) == solution.stats.accepted).all()


@ANY
def test_no_sample_is_evaluated_outside_of_its_own_times(solver: Any) -> None:
    field = Recorder(bounded)
    solve(field, some_states(5, 2), solver, TIMES)
    moments = torch.stack([t.squeeze(-1) for t, _ in field.nodes])
    assert moments.shape[1:] == (5,)
    assert (moments >= TIMES.amin(1) - 1e-15).all()
    assert (moments <= TIMES.amax(1) + 1e-15).all()


@ANY
def test_a_count_holds_what_the_slowest_sample_evaluates(solver: Any) -> None:
    with counting() as count:
        stats = solve(coupled, some_states(5, 2), solver, TIMES).stats
    assert count.forward == np.max(stats.evaluations)
    assert count.steps == np.max(stats.accepted)


FORMS: list[Callable[[Tensor], Any]] = [
    *(lambda t: t, lambda t: t.numpy(), lambda t: t.tolist(), lambda t: tuple(map(tuple, t.tolist()))),
    *(lambda t: list(t), lambda t: [list(row) for row in t], lambda t: t.t().contiguous().t()),
]


@ANY
@pytest.mark.parametrize("form", FORMS)
def test_times_may_be_a_tensor_an_array_or_rows(solver: Any, form: Callable[[Tensor], Any]) -> None:
    z = some_states(5, 2)
    found, wanted = solve(coupled, z, solver, form(TIMES)), solve(coupled, z, solver, TIMES)
    assert torch.equal(found.states, wanted.states)
    assert np.array_equal(found.times, TIMES.numpy())


@ANY
@pytest.mark.parametrize("shape", [(5,), (5, 3, 2)], ids=str)
def test_states_may_have_any_shape(solver: Any, shape: tuple[int, ...]) -> None:
    z = some_states(*shape)
    states: Any = solve(bounded, z, solver, TIMES).states
    for i, row in enumerate(ROWS):
        torch.testing.assert_close(states[:, i], alone(bounded, z[i], solver, row)[0], rtol=1e-12, atol=1e-12)


@ANY
def test_a_tuple_of_states_has_each_sample_at_its_own_times(solver: Any) -> None:
    def field(t: Tensor, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return bounded(t, z[0]), (t * z[0]).sum(dim=(1, 2))

    z = some_states(5, 3, 2)
    states: Any = solve(field, (z, z.new_zeros(5)), solver, TIMES).states
    assert [part.shape for part in states] == [(4, 5, 3, 2), (4, 5)]
    for i, row in enumerate(ROWS[:3]):
        times = unpadded(row)
        one: Any = solve(field, (z[i : i + 1], z.new_zeros(1)), solver, times).states
        for part, own in zip(states, one, strict=True):
            torch.testing.assert_close(part[: len(times), i], own[:, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("solver", [PRECISE[0], FEW[1]], ids=["adaptive", "fixed"])
@WAYS
def test_the_gradient_is_that_of_finite_differences(solver: Any, interpolate: bool) -> None:
    def states(z: Tensor, speed: Tensor) -> Any:
        return solve(gentle(speed), z, solver, TIMES, interpolate=interpolate).states

    speed = torch.tensor(0.8, dtype=DOUBLE, requires_grad=True)
    # steps are chosen outside of the gradient, so with a difference they move, which the tolerance hides
    assert gradcheck(states, (some_states(5, 2).requires_grad_(), speed), atol=1e-6)


@ANY
@WAYS
def test_checkpoints_give_the_gradient_of_backpropagation(solver: Any, interpolate: bool) -> None:
    z, network = some_states(5, 2), Network()

    def gradient(way: Any) -> list[Tensor]:
        start = z.clone().requires_grad_()
        states = solve(network, start, solver, TIMES, gradient=way, interpolate=interpolate).states
        return list(torch.autograd.grad(loss_of(states), [start, *network.parameters()]))

    for found, wanted in zip(gradient("checkpoint"), gradient("backprop"), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("solver", PRECISE, ids=["adaptive", "fixed"])
def test_the_adjoint_takes_each_sample_back_over_its_own_times(solver: Any) -> None:
    z, network = some_states(5, 2), Network()
    wanted = gradients(network, z, solver, TIMES)
    settings: Any
    for settings in ("adjoint", *map(Adjoint, PRECISE)):
        for found, exact in zip(gradients(network, z, solver, TIMES, gradient=settings), wanted, strict=True):
            torch.testing.assert_close(found, exact, rtol=1e-6, atol=1e-6)


@ANY
def test_the_adjoint_is_the_sum_of_the_adjoints_of_samples_alone(solver: Any) -> None:
    z, network = some_states(5, 2), Network()
    weights = torch.arange(1.0, 41.0, dtype=DOUBLE).sin().reshape(4, 5, 2)

    def gradient(states: Any, weights: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad((weights * states).sum(), list(network.parameters())))

    together: Any = solve(network, z, solver, TIMES, gradient="adjoint").states
    apart = [
        gradient(alone(network, z[i], solver, row, gradient="adjoint")[0], weights[:, i])
        for i, row in enumerate(ROWS)
        if len(unpadded(row)) > 1
    ]
    for found, parts in zip(gradient(together, weights), zip(*apart, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(parts).sum(0), rtol=1e-9, atol=1e-9)


def test_times_that_are_changed_after_the_solve_do_not_change_its_way_back() -> None:
    z, network, times = some_states(5, 2).requires_grad_(), Network(), TIMES.clone()
    states: Any = solve(network, z, CALM, times, gradient="adjoint").states
    times.zero_()
    (found,) = torch.autograd.grad(loss_of(states), z)
    assert torch.equal(found, gradients(network, z.detach(), CALM, TIMES, gradient="adjoint")[0])


@ANY
@WAYS
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_an_empty_batch_stays_empty_and_has_gradients_of_zero(solver: Any, gradient: Any, interpolate: bool) -> None:
    network, times = Network(), torch.zeros(0, 3)
    solution: Any = solve(network, some_states(0, 2), solver, times, gradient=gradient, interpolate=interpolate)
    assert solution.states.shape == (3, 0, 2)
    assert solution.times.shape == (0, 3)
    for part in torch.autograd.grad(solution.states.sum(), list(network.parameters())):
        assert not part.any()


def test_fields_that_a_fast_path_knows_are_solved_as_others_are() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    z = some_states(5, 2, dtype=torch.float32)
    for solver in FEW:
        for times in (TIMES, TIMES[:, [0, -1]]):
            known: Any = solve(Autonomous(network), z, solver, times).states
            plain: Any = solve(lambda t, z: network(z), z, solver, times).states
            torch.testing.assert_close(known, plain)


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (TIMES[:4], "times has 4 rows, but the state has 5 samples"),
        (TIMES.t(), "times has 4 rows, but the state has 5 samples"),
        (TIMES[:, :1], r"\[samples, n\] with n of 2 or more, not of shape \(5, 1\)"),
        (TIMES[None], r"not of shape \(1, 5, 4\)"),
        ([*ROWS[:4], (0, 1)], "rows of times must be of one length: where a sample has fewer, repeat its last one"),
        ([*ROWS[:4], (0, 1, float("nan"), 2)], r"must be finite, .* but those of sample 4 are \[0\.0, 1\.0, nan, 2\.0"),
        ([*ROWS[:4], (0, 1, 2, float("inf"))], "must be finite, .* those of sample 4"),
        ([(0, 1, 0.5, 2), *ROWS[1:]], "all rise or all fall .* those of sample 0 are"),
        ([(0, 1, 1, 2), *ROWS[1:]], "all rise or all fall .* those of sample 0 are"),
        ([(0, 0, 1, 2), *ROWS[1:]], "all rise or all fall .* those of sample 0 are"),
        ([(0, 1, 1, 0), *ROWS[1:]], "all rise or all fall .* those of sample 0 are"),
        ([("now", "then")] * 5, "times must be rows of numbers, one for each sample"),
        ([(0, 1j)] * 5, "times must be rows of numbers"),
        (TIMES * 1j, "times must be rows of numbers"),
        ([(0, 1), "01", (0, 1), (0, 1), (0, 1)], "times must be rows of numbers"),
        (TIMES.to("meta"), "times must be rows of numbers"),
    ],
)
def test_what_are_no_times_of_samples_is_refused(times: Any, sentence: str) -> None:
    for solver in FEW:
        with pytest.raises(UsageError, match=sentence):
            solve(elementwise, some_states(5, 2), solver, times)


@pytest.mark.parametrize(
    "times", [TIMES.clone().requires_grad_(), [row.requires_grad_() for row in TIMES.clone()]], ids=["tensor", "rows"]
)
def test_times_have_no_gradient(times: Any) -> None:
    with pytest.raises(UsageError, match="no gradient with respect to its times"):
        solve(elementwise, some_states(5, 2), CALM, times)


def test_samples_need_steps_of_their_own() -> None:
    z = some_states(5, 2)
    for solver in (BATCH, OnGrid("rk4", (0, 1, 2))):
        with pytest.raises(
            UsageError, match=r"steps of its own, .* take Adaptive\(\.\.\., control='sample'\) or a Fixed"
        ):
            solve(elementwise, z, solver, TIMES)
        with pytest.raises(UsageError, match="steps of its own"):
            solve(elementwise, z.clone().requires_grad_(), CALM, TIMES, gradient=Adjoint(solver))
    with pytest.raises(UsageError, match="not for ensembles"):
        solve(elementwise, some_states(2, 5, 2), [CALM] * 2, TIMES)
    with pytest.raises(UsageError, match="parts share their leading sample axis"):
        solve(elementwise, some_states(), CALM, TIMES)


def test_a_block_has_times_for_all_samples() -> None:
    with pytest.raises(UsageError, match="times must be a sequence of numbers"):
        ODEBlock(Network(), CALM, times=TIMES)  # type: ignore[arg-type]


@ANY
def test_what_is_not_finite_is_told_with_the_time_of_its_sample(solver: Any) -> None:
    z = some_states(5, 2)
    z[2, 1] = torch.inf
    with pytest.raises(NonFiniteError, match=r"the initial state is not finite at t = 1\.5 for 1 of 5 samples"):
        solve(elementwise, z, solver, TIMES)
    with pytest.raises(NonFiniteError, match=r"the field is not finite at t = 2 for 1 of 5 samples"):
        solve(lambda t, z: torch.where(t >= 2, torch.nan, -z), some_states(5, 2), solver, TIMES[[1, 4, 1, 1, 1]])


def test_a_spent_budget_and_vanishing_steps_are_told_with_the_sample_s_times() -> None:
    z, lazy = some_states(5, 2), Adaptive("dopri54", tolerance=1e-1, control="sample", max_steps=20)
    with pytest.raises(StepBudgetError, match=r"3 steps .* only to t = 0\.\d+ on its way to 2, "):
        solve(coupled, z, Adaptive("dopri54", tolerance=1e-9, control="sample", max_steps=3), TIMES)
    with pytest.raises(StepBudgetError, match=r"only landed on times asked for, so .* leave out interpolate=False"):
        solve(lambda t, z: 0 * z, z, lazy, [np.linspace(0, i + 1, 50) for i in range(5)], interpolate=False)
    with pytest.raises(VanishingStepError, match=r"at t = 2\.2\d* the step shrank below .* for 1 of 5 groups"):
        solve(lambda t, z: torch.where(t > 2.2, 1e14, -z), z, CALM, TIMES)


def test_too_many_fixed_steps_are_refused() -> None:
    with pytest.raises(StepBudgetError, match=r"1e\+09 steps from 0\.0 to 1\.0 are too many"):
        solve(elementwise, some_states(2, 2), FixedStep("euler", step=1e-9), [(0, 1e-8), (0, 1)])
