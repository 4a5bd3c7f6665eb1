"""dopri5 as it was in torchdiffeq: beside our own, whose steps before the last are the same."""

import pytest
import torch
from torch import Tensor

import windermere as wm
from benchmarks.old_dopri5 import old_dopri5

STREAM = torch.Generator().manual_seed(0)
Z = torch.randn(2, 50, 2, generator=STREAM)
WIDE, NARROW = torch.randn(2, 64, generator=STREAM), torch.randn(64, 2, generator=STREAM)


def field(z: Tensor) -> Tensor:
    return torch.relu(z @ WIDE) @ NARROW * 0.3


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-4])
def test_it_is_ours_asked_for_a_time_on_the_way_to_a_later_one(tolerance: float) -> None:
    """Steps that need not end at 1, and what lies between them."""
    later = [
        wm.solve(lambda t, x: field(x), z, wm.Adaptive("dopri54", tolerance=tolerance), (0.0, 1.0, 3.0)) for z in Z
    ]
    ours = torch.stack([solution.states[1] for solution in later])
    apart = old_dopri5(tolerance)(field, Z) - ours
    assert apart.abs().max() < 3e-5 * ours.abs().max()


def test_each_seed_has_steps_of_its_own() -> None:
    both = old_dopri5(1e-3)(field, Z * torch.tensor([1.0, 30.0])[:, None, None])
    assert torch.allclose(both[:1], old_dopri5(1e-3)(field, Z[:1]), rtol=1e-5)


def test_its_gradient_goes_through_the_steps_that_the_errors_chose() -> None:
    """It is the derivative of all that is computed: a difference quotient says the same, and one whose steps are held
    fixed does not."""
    start = Z.double()[:1].requires_grad_()
    along = torch.ones_like(start)
    solve = old_dopri5(1e-1)
    wide, narrow = WIDE.double(), NARROW.double()

    def smooth(z: Tensor) -> Tensor:
        return torch.tanh(z @ wide) @ narrow * 0.3

    end = solve(smooth, start)
    (gradient,) = torch.autograd.grad(end.sum(), start)
    beside = [solve(smooth, start.detach() + sign * 1e-3 * along).sum() for sign in (1, -1)]
    quotient = (beside[0] - beside[1]) / 2e-3
    assert torch.isclose((gradient * along).sum(), quotient, rtol=5e-3)
