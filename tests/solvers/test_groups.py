"""Error control by sample and by member: each group walks as if it were alone."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.solvers.fields import DOUBLE, Network, coupled, elementwise, some_states
from windermere.solvers import Adaptive, Solution, adaptive_names, solve

EVERY = pytest.mark.parametrize("method", adaptive_names())
BOTH = pytest.mark.parametrize("interpolate", [False, True])
TIMES = (0.0, 1.3, 3.0)


def stats(solution: Solution, *index: int) -> list[int]:
    """Evaluations, accepted and rejected steps of one group."""
    costs = (solution.stats.evaluations, solution.stats.accepted, solution.stats.rejected)
    return [int(np.asarray(cost)[index]) for cost in costs]


def states(solution: Solution) -> Tensor:
    assert isinstance(solution.states, Tensor)
    return solution.states


@EVERY
@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_a_sample_does_not_notice_the_rest_of_its_batch(
    method: str, dtype: torch.dtype, shape: tuple[int, ...], interpolate: bool
) -> None:
    solver = Adaptive(method, tolerance=1e-4, control="sample")
    z = some_states(9, *shape, dtype=dtype)
    together = solve(elementwise, z, solver, TIMES, interpolate=interpolate)
    assert len({tuple(stats(together, i)) for i in range(9)}) > 1
    for chosen in ([0], [4], [8, 2], [3, 4, 5, 6]):
        apart = solve(elementwise, z[chosen], solver, TIMES, interpolate=interpolate)
        assert torch.equal(states(apart), states(together)[:, chosen])
        assert [stats(apart, i) for i in range(len(chosen))] == [stats(together, i) for i in chosen]


def test_a_wild_sample_costs_its_batch_nothing_but_time() -> None:
    solver = Adaptive("dopri54", tolerance=1e-5, control="sample")
    z = some_states(4, 3)
    wild = torch.cat([z, torch.full((1, 3), 30.0, dtype=DOUBLE)])
    calm, disturbed = solve(elementwise, z, solver), solve(elementwise, wild, solver)
    assert torch.equal(states(disturbed)[:, :4], states(calm))
    assert stats(disturbed, 4)[1] > 2 * max(stats(calm, i)[1] for i in range(4))


@EVERY
def test_with_a_network_a_sample_does_not_notice_the_others_up_to_rounding(method: str) -> None:
    """A matrix product may sum in another order when the batch is another; steps are the same, states almost."""
    solver, network, z = Adaptive(method, tolerance=1e-4, control="sample"), Network(seed=5), 2 * some_states(6, 2)
    together = solve(network, z, solver, TIMES)
    for i in range(6):
        apart = solve(network, z[i : i + 1], solver, TIMES)
        assert stats(apart, 0) == stats(together, i)
        torch.testing.assert_close(states(apart)[:, 0], states(together)[:, i], rtol=1e-10, atol=1e-10)


def test_with_the_batchs_error_controlled_a_sample_does_notice_the_others() -> None:
    z, solver = some_states(6, 2), Adaptive("bosh32", tolerance=1e-3)
    assert not torch.equal(states(solve(coupled, z, solver))[:, 0], states(solve(coupled, z[:1], solver))[:, 0])


def members(method: str, control: Any = "batch") -> list[Adaptive]:
    tolerances = [(1e-2, 1e-3), (1e-5, 1e-7), (1e-4, 1e-3)]
    return [Adaptive(method, rtol=rtol, atol=atol, control=control) for rtol, atol in tolerances]


@EVERY
@BOTH
def test_a_member_with_its_own_tolerance_walks_as_if_alone(method: str, interpolate: bool) -> None:
    solvers, z = members(method), some_states(3, 4, 2)
    together = solve(elementwise, z, solvers, TIMES, interpolate=interpolate)
    assert len({tuple(stats(together, s)) for s in range(3)}) > 1
    for s in range(3):
        as_ensemble_of_one = solve(elementwise, z[s : s + 1], solvers[s : s + 1], TIMES, interpolate=interpolate)
        assert torch.equal(states(as_ensemble_of_one)[:, 0], states(together)[:, s])
        plain = solve(elementwise, z[s], solvers[s], TIMES, interpolate=interpolate)
        assert stats(plain) == stats(as_ensemble_of_one, 0) == stats(together, s)
        torch.testing.assert_close(states(plain), states(together)[:, s], rtol=1e-10, atol=1e-10)


def test_members_with_one_tolerance_still_have_steps_of_their_own() -> None:
    solver = Adaptive("bosh32", tolerance=1e-5)
    z = some_states(3, 4, 2) * torch.tensor([0.01, 1.0, 3.0], dtype=DOUBLE)[:, None, None]
    together = solve(elementwise, z, [solver] * 3)
    assert len(set(np.asarray(together.stats.accepted).tolist())) > 1
    for s in range(3):
        assert stats(solve(elementwise, z[s], solver)) == stats(together, s)


@EVERY
def test_a_members_sample_walks_as_if_alone(method: str) -> None:
    solvers, z = members(method, "sample"), some_states(3, 4, 2)
    together = solve(elementwise, z, solvers, TIMES)
    assert np.shape(together.stats.accepted) == (3, 4)
    for s in range(3):
        alone = solve(elementwise, z[s], solvers[s], TIMES)
        assert torch.equal(states(alone), states(together)[:, s])
        for b in range(4):
            assert stats(alone, b) == stats(together, s, b)


def test_groups_walk_backwards_in_time_as_if_alone() -> None:
    solvers, z = members("dopri54", "sample"), 0.3 * some_states(3, 4, 2)
    together = solve(elementwise, z, solvers, (1.0, 0.2))
    for s in range(3):
        assert torch.equal(states(solve(elementwise, z[s], solvers[s], (1.0, 0.2))), states(together)[:, s])


def test_the_field_of_a_group_sees_its_own_time() -> None:
    """dz/dt = 2t from 0 gives t^2 whatever the steps; a time of another group would show."""
    solver = Adaptive("fehlberg21", rtol=0, atol=1e-4, control="sample")
    z = torch.zeros(5, 1, dtype=DOUBLE)
    speeds = torch.tensor([[1.0], [2.0], [5.0], [9.0], [20.0]], dtype=DOUBLE)

    def field(t: Tensor, z: Tensor) -> Tensor:
        return torch.cos(speeds * t) * speeds

    solution = solve(field, z, solver, record=True)
    assert solution.trajectory is not None
    assert solution.trajectory.times.shape[1:] == (5,)
    assert len(set(np.asarray(solution.stats.accepted).tolist())) >= 4
    torch.testing.assert_close(solution.final, torch.sin(speeds), rtol=0, atol=1e-2)
    moments = torch.as_tensor(solution.trajectory.times)[..., None]
    torch.testing.assert_close(solution.trajectory.states, torch.sin(speeds * moments), rtol=0, atol=1e-2)


def test_a_group_that_arrived_keeps_its_state_even_where_its_field_is_not_finite() -> None:
    """The first member's field blows up after it arrived at t = 1, where its time stands still; the second goes on."""
    calls = 0

    def field(t: Tensor, z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        rate = torch.cos(torch.tensor([[1.0], [60.0]], dtype=DOUBLE) * t)
        arrived = torch.tensor([[calls > 60], [False]])
        return torch.where(arrived, torch.nan, rate)

    solver = Adaptive("dopri54", tolerance=1e-6, control="sample")
    solution = solve(field, torch.ones(2, 1, dtype=DOUBLE), solver)
    assert calls > 60 > stats(solution, 0)[0]
    expected = torch.tensor([[1 + np.sin(1.0)], [1 + np.sin(60.0) / 60]], dtype=DOUBLE)
    torch.testing.assert_close(solution.final, expected, rtol=0, atol=1e-5)


def test_a_tuples_samples_walk_as_if_alone() -> None:
    solver = Adaptive("dopri54", tolerance=1e-5, control="sample")

    def field(t: Tensor, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return elementwise(t, z[0]), -z[1] * t * z[1]

    x, y = some_states(5, 3), 1 + some_states(5, 2, seed=1).abs()
    together = solve(field, (x, y), solver)
    for i in range(5):
        alone = solve(field, (x[i : i + 1], y[i : i + 1]), solver)
        assert stats(alone, 0) == stats(together, i)
        for mine, ours in zip(alone.final, together.final, strict=True):
            assert torch.equal(mine[0], ours[i])


class Falling(nn.Module):
    """-w sqrt(z), with a wave of each sample's own speed: below 0, where long steps lead, it is not a number."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.weight, self.sign, self.lost = nn.Parameter(torch.ones((), dtype=DOUBLE)), sign, 0

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        x, speed = z.unbind(-1)
        t = t.squeeze(-1) if t.ndim == z.ndim else t
        k = self.weight * (1.98 * self.sign * x.sqrt() + 1e-3 * speed * torch.cos(speed * t))
        self.lost += int(k.isnan().sum())
        return torch.stack([k, torch.zeros_like(x)], dim=-1)


@pytest.mark.parametrize("method", ["dopri54", "tsit54"])
@pytest.mark.parametrize("members", [False, True], ids=["samples", "members"])
@pytest.mark.parametrize(
    ("gradient", "interpolate"),
    [("backprop", False), ("backprop", True), ("checkpoint", False), ("adjoint", False)],
)
def test_a_trial_that_is_not_finite_is_in_no_gradient(
    method: str, members: bool, gradient: Any, interpolate: bool
) -> None:
    """One sample's rejected trial is evaluated together with steps of others that are accepted."""
    sign = 1.0 if gradient == "adjoint" else -1.0  # the adjoint falls on its way back
    start = [[1e-4 if sign > 0 else 1.0, 0.0], [2.0, 30.0], [3.0, 100.0]]
    solver = Adaptive(method, tolerance=1e-2, control="batch" if members else "sample")

    def gradients(rows: list[list[float]]) -> tuple[Tensor, Tensor, int]:
        field, z = Falling(sign), torch.tensor(rows, dtype=DOUBLE).requires_grad_()
        state, solvers = (z[:, None], [solver] * len(z)) if members else (z, solver)
        solution = solve(field, state, solvers, (0.0, 0.7, 1.0), gradient=gradient, interpolate=interpolate)
        states(solution)[..., 0].sum().backward()  # type: ignore[no-untyped-call]
        assert z.grad is not None
        assert field.weight.grad is not None
        return z.grad[:, 0], field.weight.grad, field.lost

    together, weight, lost = gradients(start)
    alone, weights, _ = zip(*(gradients([row]) for row in start), strict=True)
    assert lost > 0
    torch.testing.assert_close(together, torch.cat(alone))
    torch.testing.assert_close(weight, torch.stack(weights).sum())
