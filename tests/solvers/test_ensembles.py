"""Fixed-step ensembles: members share one batched solve, each with its own steps."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.solvers.fields import DOUBLE, Recorder, elementwise, some_states
from windermere.errors import NonFiniteError, UsageError
from windermere.solvers import METHODS, Adaptive, FixedStep, OnGrid, solve

STEPS = (2, 7, 3, 7)
DYADIC = ("euler", "midpoint", "heun")
"""Methods whose coefficients are powers of two: there h times a coefficient has no rounding of its own."""


def ensemble(method: str) -> list[FixedStep]:
    return [FixedStep(method, step=1 / n) for n in STEPS]


def final(*args: Any, **options: Any) -> Tensor:
    value = solve(*args, **options).final
    assert isinstance(value, Tensor)
    return value


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, 0.0), (0.0, 0.4, 1.1)])
def test_members_with_steps_of_their_own_walk_as_if_alone(method: str, times: tuple[float, ...]) -> None:
    z = 0.5 * some_states(4, 3, 2)
    together = solve(elementwise, z, ensemble(method), times)
    assert isinstance(together.states, Tensor)
    closeness = 0 if method in DYADIC else 1e-13
    for s, solver in enumerate(ensemble(method)):
        alone = solve(elementwise, z[s], solver, times)
        torch.testing.assert_close(together.states[:, s], alone.states, rtol=closeness, atol=closeness)
        assert np.asarray(together.stats.accepted)[s] == alone.stats.accepted
        assert np.asarray(together.stats.evaluations)[s] == alone.stats.evaluations


@pytest.mark.parametrize("method", METHODS)
def test_members_with_one_step_share_it_and_walk_as_if_alone_bit_for_bit(method: str) -> None:
    z = some_states(3, 5, 2)
    together = solve(elementwise, z, [FixedStep(method, step=1 / 5)] * 3)
    assert together.stats.accepted == 5
    assert isinstance(together.final, Tensor)
    for s in range(3):
        assert torch.equal(together.final[s], final(elementwise, z[s], FixedStep(method, step=1 / 5)))


def test_members_may_have_grids_of_their_own() -> None:
    grids = [OnGrid("heun", (0, 0.1, 1)), OnGrid("heun", (0, 0.5, 0.75, 1))]
    z = some_states(2, 3)
    together = final(elementwise, z, grids, (0, 1))
    for s, grid in enumerate(grids):
        torch.testing.assert_close(together[s], final(elementwise, z[s], grid), rtol=0, atol=0)


def test_the_longest_member_sets_the_number_of_calls() -> None:
    field = Recorder(elementwise)
    solve(field, some_states(4, 3), ensemble("rk4"))
    assert field.calls == 4 * max(STEPS)
    assert {tuple(t.shape) for t, _ in field.nodes} == {(4, 1)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_a_member_that_arrived_keeps_its_state_even_where_its_field_is_not_finite(method: str, gradient: Any) -> None:
    """The first member stands at t = 1 while the second walks on; at t = 1 the field divides by zero."""

    def field(t: Tensor, z: Tensor) -> Tensor:
        return 1 / (1 - t) ** 0.25 * torch.ones_like(z)

    solvers = [FixedStep(method, step=1 / 2), FixedStep(method, step=1 / 8)]
    z = torch.zeros(2, 3, dtype=DOUBLE)
    if 1.0 in METHODS[method].c[: len(METHODS[method].b)] and method not in ("bosh32",):
        with pytest.raises(NonFiniteError, match=r"the field is not finite at t = 1 for 3 of 6 samples"):
            solve(field, z, solvers, gradient=gradient)
        return
    together = final(field, z, solvers, gradient=gradient)
    for s, solver in enumerate(solvers):
        torch.testing.assert_close(together[s], final(field, z[s], solver))


def test_the_failing_member_is_named_by_its_own_time_not_by_one_that_arrived() -> None:
    """Member 0 arrives at 1, where the field is not finite (and need not be); member 1 fails on its way, past 0.8."""

    def field(t: Tensor, z: Tensor) -> Tensor:
        return torch.where(t > 0.8, torch.nan, torch.ones_like(z))

    with pytest.raises(NonFiniteError, match=r"at t = 0\.9 for 2 of 4 samples"):
        solve(field, torch.zeros(2, 2), [FixedStep("euler", step=0.5), FixedStep("euler", step=0.1)])


@pytest.mark.parametrize(
    ("solvers", "sentence"),
    [
        ([FixedStep("euler", step=1)] * 3, "3 solvers were given, one for each member, .* first axis is not 3"),
        ([], "one solver for each member"),
        ([FixedStep("euler", step=1), FixedStep("rk4", step=1)], "all of one method and kind"),
        ([FixedStep("euler", step=1), OnGrid("euler", (0, 1))], "all of one method and kind"),
        (
            [Adaptive("dopri54", tolerance=1e-3), Adaptive("dopri54", tolerance=1e-3, control="sample")],
            "may differ in their tolerances, not in control or max_steps",
        ),
        (
            [Adaptive("dopri54", tolerance=1e-3), Adaptive("dopri54", tolerance=1e-3, max_steps=5)],
            "may differ in their tolerances, not in control or max_steps",
        ),
        (["rk4", "rk4"], "a solver is a FixedStep, an OnGrid or an Adaptive"),
    ],
)
def test_solvers_that_do_not_fit_the_ensemble_are_refused(solvers: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        solve(elementwise, some_states(2, 3), solvers)


def test_members_scalars_need_no_sample_axis() -> None:
    z = some_states(4)
    together = final(elementwise, z, ensemble("euler"))
    for s, solver in enumerate(ensemble("euler")):
        assert torch.equal(together[s], final(elementwise, z[s], solver))
