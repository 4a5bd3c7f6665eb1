"""States of every shape: tuples, several times, recorded trajectories, scalars."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.solvers.fields import DOUBLE, Network, Recorder, coupled, elementwise, some_states
from windermere.solvers import GRADIENTS, Adaptive, FixedStep, Gradient, OnGrid, Solution, Solver, counting, solve

SOLVERS: list[Solver] = [
    FixedStep("rk4", step=1 / 7),
    FixedStep("heun", step=0.3),
    Adaptive("dopri54", tolerance=1e-4),
    Adaptive("fehlberg21", tolerance=1e-3),
]
EVERY = pytest.mark.parametrize("solver", SOLVERS, ids=str)
WAYS = pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, 0.0), (0.0, 0.4, 1.3)])


def tensor(state: Any) -> Tensor:
    assert isinstance(state, Tensor)
    return state


def apart(t: Tensor, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """`coupled`, its two entries in two tensors."""
    whole = coupled(t, torch.stack([part.squeeze(-1) for part in z], dim=-1))
    return whole[..., 0].reshape(z[0].shape), whole[..., 1].reshape(z[1].shape)


@EVERY
@WAYS
def test_a_tuple_is_solved_like_the_tensor_made_of_its_parts(solver: Solver, times: tuple[float, ...]) -> None:
    z = some_states(5, 2)
    whole = solve(coupled, z, solver, times, record=True)
    parts = solve(apart, (z[:, 0], z[:, 1:]), solver, times, record=True)
    assert parts.stats == whole.stats
    assert [part.shape for part in parts.final] == [(5,), (5, 1)]
    assert [part.shape for part in parts.states] == [(len(times), 5), (len(times), 5, 1)]
    for got, want in ((parts.final, whole.final), (parts.states, whole.states)):
        torch.testing.assert_close(torch.cat([got[0].unsqueeze(-1), got[1]], dim=-1), want, rtol=0, atol=1e-12)
    assert parts.trajectory is not None
    assert whole.trajectory is not None
    np.testing.assert_allclose(parts.trajectory.times, whole.trajectory.times)
    torch.testing.assert_close(parts.trajectory.states[0], tensor(whole.trajectory.states)[..., 0], rtol=0, atol=1e-12)


@EVERY
def test_parts_that_share_no_axis_are_solved_as_one_state(solver: Solver) -> None:
    def field(t: Tensor, z: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        matrix, vector, number = z
        return -matrix * number, t * vector, matrix.sum() - vector.mean() - number

    start = (some_states(2, 3), some_states(4, seed=1), torch.tensor(0.7, dtype=DOUBLE))
    flat = torch.cat([part.reshape(-1) for part in start])

    def flattened(t: Tensor, z: Tensor) -> Tensor:
        parts = field(t, (z[:6].reshape(2, 3), z[6:10], z[10]))
        return torch.cat([part.reshape(-1) for part in parts])

    solution, whole = solve(field, start, solver), solve(flattened, flat, solver)
    assert solution.stats == whole.stats
    assert [part.shape for part in solution.final] == [(2, 3), (4,), ()]
    torch.testing.assert_close(torch.cat([part.reshape(-1) for part in solution.final]), whole.final, rtol=0, atol=0)


def test_a_field_may_return_a_list_for_a_tuple() -> None:
    z = (some_states(3), some_states(3, 2))
    solution = solve(lambda t, z: [-part for part in z], z, FixedStep("euler", step=1 / 4))
    for part, start in zip(solution.final, z, strict=True):
        torch.testing.assert_close(part, start * 0.75**4)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["equal", "ragged", "adaptive"])
def test_a_tuple_of_an_ensemble_is_solved_member_by_member(shared: bool, kind: str) -> None:
    solvers: Any = {
        "equal": [FixedStep("rk4", step=1 / 4)] * 2,
        "ragged": [FixedStep("rk4", step=1 / 4), FixedStep("rk4", step=1 / 3)],
        "adaptive": [Adaptive("bosh32", tolerance=1e-4), Adaptive("bosh32", tolerance=1e-2)],
    }[kind]

    def field(t: Tensor, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return t.expand_as(z[0]) - z[0], -z[1] * z[1]

    z = (some_states(2, 3, 2), some_states(2, 3, 4, seed=1).abs() if shared else some_states(2, 5, seed=1).abs())
    together = solve(field, z, solvers)
    for s in range(2):
        alone = solve(field, (z[0][s], z[1][s]), solvers[s])
        for mine, ours in zip(alone.final, together.final, strict=True):
            torch.testing.assert_close(mine, ours[s], rtol=0, atol=1e-12)


@EVERY
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3, 4, 5)])
def test_a_state_keeps_its_shape_whatever_it_is(solver: Solver, shape: tuple[int, ...]) -> None:
    z = some_states(*shape)
    solution = solve(elementwise, z, solver, (0.0, 0.5, 1.0), record=True)
    assert tensor(solution.final).shape == z.shape
    assert tensor(solution.states).shape == (3, *shape)
    assert solution.trajectory is not None
    assert tensor(solution.trajectory.states).shape == (len(solution.trajectory.times), *shape)


@pytest.mark.parametrize("solver", [*SOLVERS[:1], Adaptive("dopri54", tolerance=1e-9)], ids=str)
def test_states_at_the_times_asked_for_are_those_of_solves_that_end_there(solver: Solver) -> None:
    z, times = some_states(4, 2), (0.0, 3 / 7, 6 / 7, 1.0)
    states = tensor(solve(coupled, z, solver, times).states)
    assert torch.equal(states[0], z)
    for i, end in enumerate(times[1:], start=1):
        torch.testing.assert_close(states[i], solve(coupled, z, solver, (0.0, end)).final, rtol=0, atol=1e-7)


@EVERY
def test_the_trajectory_holds_every_step_and_each_follows_from_the_one_before(solver: Solver) -> None:
    z = some_states(3, 2)
    solution = solve(coupled, z, solver, (0.0, 0.7, 2.0), interpolate=False, record=True)
    trajectory = solution.trajectory
    assert trajectory is not None
    states, times = tensor(trajectory.states), trajectory.times
    assert len(times) == len(states) == int(np.asarray(solution.stats.accepted)) + 1
    assert times[0] == 0
    assert times[-1] == 2
    assert (np.diff(times) > 0).all()
    assert 0.7 in times
    for i in range(len(times) - 1):
        step = solve(coupled, states[i], OnGrid(solver.method, (times[i], times[i + 1])))
        torch.testing.assert_close(step.final, states[i + 1], rtol=0, atol=1e-12)
    for t, state in zip(solution.times, tensor(solution.states), strict=True):
        assert torch.equal(states[list(times).index(t)], state)


def test_a_ragged_ensembles_trajectory_holds_each_members_times_and_repeats_the_last() -> None:
    solvers = [FixedStep("euler", step=1 / 2), FixedStep("euler", step=1 / 3)]
    solution = solve(elementwise, some_states(2, 3), solvers, record=True)
    assert solution.trajectory is not None
    np.testing.assert_allclose(solution.trajectory.times, [[0.0, 0.0], [1 / 2, 1 / 3], [1.0, 2 / 3], [1.0, 1.0]])
    states = tensor(solution.trajectory.states)
    assert torch.equal(states[2, 0], states[3, 0])
    assert not torch.equal(states[2, 1], states[3, 1])


@EVERY
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_no_record_is_kept_unless_asked_for_and_it_changes_nothing(solver: Solver, gradient: Gradient) -> None:
    z = some_states(3, 2)

    def solved(record: bool) -> Solution:
        return solve(coupled, z, solver, record=record, gradient=gradient)

    assert solved(False).trajectory is None
    assert torch.equal(tensor(solved(True).final), tensor(solved(False).final))
    assert solved(True).stats == solved(False).stats


def test_the_first_state_is_the_one_given_and_is_not_written_to() -> None:
    z = some_states(3, 2)
    kept = z.clone()
    for solver in SOLVERS:
        assert torch.equal(tensor(solve(elementwise, z, solver).states)[0], kept)
        assert torch.equal(z, kept)


def test_without_times_a_solve_goes_from_zero_to_one_or_over_the_solvers_own_grid() -> None:
    assert solve(elementwise, some_states(2), FixedStep("euler", step=0.5)).times == (0.0, 1.0)
    assert solve(elementwise, some_states(2), OnGrid("euler", (3, 2, 0))).times == (3.0, 0.0)


def test_times_may_be_a_tensor_or_an_array() -> None:
    z, solver = some_states(2), FixedStep("euler", step=0.5)
    given: list[Any] = [torch.linspace(0, 2, 3), np.linspace(0, 2, 3), [0, 1, 2]]
    for times in given:
        assert solve(elementwise, z, solver, times).times == (0.0, 1.0, 2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_solve_stays_in_the_states_dtype(dtype: torch.dtype) -> None:
    field = Recorder(elementwise)
    solution = solve(field, some_states(3, dtype=dtype), FixedStep("rk4", step=1 / 4))
    assert tensor(solution.final).dtype == dtype
    assert {z.dtype for _, z in field.nodes} == {dtype}


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize(
    "solver",
    [
        FixedStep("rk4", step=1 / 4),
        Adaptive("dopri54", tolerance=1e-3),
        Adaptive("dopri54", tolerance=1e-3, control="sample"),
    ],
    ids=str,
)
def test_an_empty_batch_stays_empty_and_has_gradients_of_zero(solver: Any, gradient: Any) -> None:
    network, empty = Network(), torch.zeros(0, 2, dtype=DOUBLE)
    with counting():
        solution = solve(network, empty, solver, (0.0, 0.5, 1.0), gradient=gradient, record=True)
    assert tensor(solution.states).shape == (3, 0, 2)
    tensor(solution.final).sum().backward()  # type: ignore[no-untyped-call]
    for parameter in network.parameters():
        assert torch.equal(torch.as_tensor(parameter.grad), torch.zeros_like(parameter))


def test_an_ensembles_empty_batch_stays_empty() -> None:
    for control in ("batch", "sample"):
        solver = Adaptive("dopri54", tolerance=1e-3, control=control)
        assert tensor(solve(elementwise, torch.zeros(3, 0, 2), [solver] * 3).final).shape == (3, 0, 2)
