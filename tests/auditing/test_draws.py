"""Models that draw noise are decided, with the noise held fixed; float64 that cannot be had is told."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint

import windermere as wm
from tests.auditing.test_known_cases import Rotation, ring
from windermere.auditing import Outcome, Verdict
from windermere.nn.draws import HELD

STEPS = {"method": "euler", "options": {"step_size": 0.125}}


class Growing(nn.Module):
    """A linear field whose trace, 1.5, Hutchinson's noise finds exactly for each sample, if it consists of signs."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = nn.Parameter(torch.tensor([1.0, 0.5]))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return z * self.rates


class Likelihood(nn.Module):
    """The logarithm of the density by Hutchinson's trace, as FFJORD has it, with noise of the given place."""

    def __init__(self, place: str, normal: bool = True) -> None:
        super().__init__()
        self.field, self.place, self.normal = Growing(), place, normal

    def noise(self, x: Tensor) -> Tensor:
        return torch.randn_like(x) if self.normal else torch.randint_like(x, 2) * 2 - 1

    def forward(self, x: Tensor) -> Any:
        once = self.noise(x)

        def rate(t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            noise = once if self.place == "before" else self.noise(state[0])
            with torch.enable_grad():
                z = state[0].detach().requires_grad_()
                dz = self.field(t, z)
                (back,) = torch.autograd.grad(dz, z, noise)
            return dz.detach(), (back * noise).sum(dim=1)

        z, trace = odeint(rate, (x, torch.zeros(len(x))), torch.tensor([1.0, 0.0]), **STEPS)
        return -0.5 * z[-1].square().sum(dim=1) + trace[-1]


def by_nats(model: Any, x: Tensor, threshold: float = 0.05) -> Verdict:
    return wm.audit(model, (x, torch.zeros(len(x))), metric=lambda outputs, _: outputs, threshold=threshold)


def exact(x: Tensor) -> float:
    """With signs for noise, in closed form."""
    z = x.double() * torch.tensor([-1.0, -0.5]).double().exp()
    return float((-0.5 * z.square().sum(dim=1) - 1.5).mean())


@pytest.mark.parametrize("place", ["before", "inside"])
def test_a_hutchinson_likelihood_is_decided_wherever_it_draws_its_noise(place: str) -> None:
    x = 2 * torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    expected = torch.randn(3)
    torch.manual_seed(1)
    verdict = by_nats(Likelihood(place, normal=False), x)
    assert verdict.outcome is not Outcome.UNDECIDED
    assert HELD in verdict.notes
    assert verdict.reference.dtype == "float64"
    assert verdict.reference.metric == pytest.approx(exact(x), abs=1e-4)
    assert torch.equal(torch.randn(3), expected)


@pytest.mark.parametrize("place", ["before", "inside"])
def test_normal_noise_gives_the_same_verdict_each_time(place: str) -> None:
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    one, other = (by_nats(Likelihood(place), x, threshold=0.5) for _ in range(2))
    assert one.outcome is Outcome.FLOW
    assert (one.own.metric, one.reference.metric) == (other.own.metric, other.reference.metric)


class Jittered(Rotation):
    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return super().forward(t, z) + 0.1 * torch.randn_like(z)


def in_block() -> nn.Module:
    return nn.Sequential(wm.ODEBlock(Jittered(3.0), wm.FixedStep.of("rk4", steps=16)))


def by_odeint() -> Callable[[Tensor], Any]:
    field = Jittered(3.0)
    return lambda x: wm.odeint(field, x, torch.tensor([0.0, 1.0]), method="rk4", options={"step_size": 1 / 16})[-1]


@pytest.mark.parametrize("make", [in_block, by_odeint])
def test_one_draw_makes_a_field_that_solvers_converge_on(make: Callable[[], Any]) -> None:
    verdict = wm.audit(make(), (ring(), ring()), metric=lambda z, _: z[:, 0], threshold=0.01)
    assert verdict.outcome is Outcome.FLOW
    assert HELD in verdict.notes
    assert verdict.own.error is not None
    assert verdict.own.error < 1e-3


class Summed(Jittered):
    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return super().forward(t, z - z.mean(dim=0))


def test_samples_that_depend_on_their_batch_are_found_beside_noise() -> None:
    verdict = wm.audit(wm.ODEBlock(Summed(3.0), wm.FixedStep.of("rk4", steps=4)), (ring() + 1, torch.zeros(400).long()))
    assert verdict.outcome is Outcome.UNDECIDED
    assert "batch" in verdict.sentence


class NoDoubles(Rotation):
    """On a machine, or in so little memory, that float64 cannot be had."""

    def __init__(self, error: Exception) -> None:
        super().__init__(3.0)
        self.error = error

    def double(self) -> Any:
        raise self.error


NONE = TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.")


@pytest.mark.parametrize(
    ("error", "words"),
    [(MemoryError(), "memory"), (RuntimeError("CUDA out of memory. Tried to allocate"), "memory"), (NONE, "MPS")],
)
def test_where_float64_cannot_be_had_the_reference_is_in_the_models_own_dtype_and_has_an_error(
    error: Exception, words: str
) -> None:
    model = wm.ODEBlock(NoDoubles(error), wm.FixedStep.of("euler", steps=64))
    verdict = wm.audit(model, (ring(), torch.zeros(400).long()))
    assert verdict.outcome is not Outcome.UNDECIDED
    assert verdict.reference.dtype == "float32"
    assert verdict.reference.error is not None
    assert verdict.reference.error >= 1e-7
    assert any(words in note and "its own dtype" in note for note in verdict.notes)


def test_where_only_bfloat16_fits_its_rounding_is_named_and_not_called_chaos() -> None:
    field = nn.Linear(2, 2, bias=False)
    field.weight.data = torch.tensor([[0.0, 3.0], [-3.0, 0.0]])
    field.double = NoDoubles(MemoryError()).double  # type: ignore[method-assign]
    model = wm.ODEBlock(wm.Autonomous(field), wm.FixedStep.of("euler", steps=64)).to(torch.bfloat16)
    verdict = wm.audit(model, (ring(), ring()), metric=lambda z, _: z[:, 0], threshold=1e-3)
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.reference.dtype == "bfloat16"
    assert "rounding to bfloat16" in verdict.sentence
