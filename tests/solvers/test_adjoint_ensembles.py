"""The adjoint of an ensemble: every member's is its own."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.solvers.fields import Network, some_states
from tests.solvers.test_adjoint import TIMES, gap
from tests.solvers.test_gradients import gradients
from windermere.errors import UsageError
from windermere.solvers import Adaptive, Adjoint, FixedStep, counting, solve


class Stacked(torch.nn.Module):
    """A network for each member, with parameters of its own along the first axis."""

    def __init__(self, members: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(some_states(members, 2, 2, seed=7) * 0.7)
        self.bias = torch.nn.Parameter(some_states(members, 1, 2, seed=8) * 0.5)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.tanh(torch.baddbmm(self.bias * torch.cos(t), z, self.weight))

    def member(self, s: int) -> "Stacked":
        alone = Stacked(1)
        alone.weight.data, alone.bias.data = self.weight.data[s : s + 1], self.bias.data[s : s + 1]
        return alone


ENSEMBLES: dict[str, Any] = {
    "equal": [FixedStep("rk4", step=1 / 6)] * 3,
    "ragged": [FixedStep("rk4", step=1 / n) for n in (6, 3, 9)],
    "batch": [Adaptive("dopri54", tolerance=tol) for tol in (1e-3, 1e-5, 1e-7)],
    "sample": [Adaptive("dopri54", tolerance=tol, control="sample") for tol in (1e-3, 1e-5, 1e-7)],
}


@pytest.mark.parametrize("kind", ENSEMBLES)
@TIMES
def test_a_members_adjoint_is_that_of_the_member_alone(kind: str, times: tuple[float, ...]) -> None:
    field, z, solvers = Stacked(3), some_states(3, 4, 2), ENSEMBLES[kind]
    start = z.clone().requires_grad_()
    final = solve(field, start, solvers, times, gradient="adjoint").final
    assert isinstance(final, Tensor)
    together = torch.autograd.grad(final.square().sum(), [start, *field.parameters()])
    for s in range(3):
        alone, own = field.member(s), z[s : s + 1].clone().requires_grad_()
        end = solve(alone, own, solvers[s : s + 1], times, gradient="adjoint").final
        assert isinstance(end, Tensor)
        for ours, mine in zip(
            together, torch.autograd.grad(end.square().sum(), [own, *alone.parameters()]), strict=True
        ):
            torch.testing.assert_close(ours[s : s + 1], mine, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ENSEMBLES)
def test_an_ensembles_adjoint_is_close_to_its_backprop(kind: str) -> None:
    assert gap(Stacked(3), some_states(3, 4, 2), ENSEMBLES[kind], (0.0, 1.0)) < 2e-2


@pytest.mark.parametrize("kind", ENSEMBLES)
@pytest.mark.parametrize("finer", [FixedStep("rk4", step=1 / 40), Adaptive("dopri54", tolerance=1e-9)], ids=str)
def test_an_ensembles_adjoint_takes_one_finer_solver_for_all_members_or_one_for_each(kind: str, finer: Any) -> None:
    field, z = Stacked(3), some_states(3, 4, 2)
    one = gradients(field, z, ENSEMBLES[kind], gradient=Adjoint(solver=finer))
    with counting() as count:
        each = gradients(field, z, ENSEMBLES[kind], gradient=Adjoint(solver=[finer] * 3))
    assert np.shape(count.backward) == (3,)
    for a, b in zip(one, each, strict=True):
        assert torch.equal(a, b)
    truth = gradients(field, z, FixedStep("rk4", step=1 / 40))
    for a, b in zip(one, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-2)


@pytest.mark.parametrize("solver", [[FixedStep("rk4", step=1)] * 2, [FixedStep("rk4", step=1)] * 3])
def test_adjoint_solvers_that_do_not_fit_are_refused(solver: Any) -> None:
    with pytest.raises(UsageError, match="it takes one, or in an ensemble one for each member"):
        solve(Network(), some_states(2, 2), FixedStep("rk4", step=1), gradient=Adjoint(solver=solver))
    if len(solver) == 3:
        with pytest.raises(UsageError, match="3 solvers"):
            solve(Network(), some_states(2, 2, 2), [FixedStep("rk4", step=1)] * 2, gradient=Adjoint(solver=solver))
