"""The reference flow: honest about its own error, and a reason where it is not found."""

from math import pi
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.auditing.test_known_cases import Rotation, labelled_by_itself, right_of_zero, ring
from windermere.auditing import Outcome, Verdict
from windermere.auditing.block_model import ModelSubject
from windermere.auditing.judge import end_of
from windermere.auditing.reference import _holds_for_most, reference_flow
from windermere.auditing.refinement import left_over, observed_order, refinements
from windermere.auditing.scoring import distance
from windermere.auditing.subject import PredictSubject
from windermere.errors import AuditError


class Linear(nn.Module):
    """z' = (-fast x, -y)."""

    def __init__(self, fast: float) -> None:
        super().__init__()
        self.rates = nn.Parameter(torch.tensor([-fast, -1.0]))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return self.rates * z


class Lorenz(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor([10.0, 28.0, 8 / 3]))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        (sigma, rho, beta), (x, y, w) = self.values, z.unbind(-1)
        return torch.stack([sigma * (y - x), x * (rho - w) - y, x * y - beta * w], dim=-1)


class Kinked(nn.Module):
    """A ReLU network: rk4 converges with order about 2."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
        for layer in self.net:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=0.7)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        rate: Tensor = self.net(z)
        return rate


class Square(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.0))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return self.factor * z**2


def audited(field: nn.Module, solver: Any, x: Tensor, times: tuple[float, float] = (0.0, 1.0), **how: Any) -> Verdict:
    torch.manual_seed(1)
    model = nn.Sequential(wm.ODEBlock(field, solver, times=times), nn.Linear(x.shape[1], 2))
    return wm.audit(model, (x, labelled_by_itself(model, x)), **how)


def attractor(samples: int = 40) -> Tensor:
    return torch.randn(samples, 3, generator=torch.Generator().manual_seed(0)) + torch.tensor([1.0, 1.0, 20.0])


@pytest.mark.parametrize("steps", [4, 64])
def test_the_estimate_of_its_own_error_is_near_the_truth_on_a_field_that_is_not_smooth(steps: int) -> None:
    subject, x = ModelSubject(wm.ODEBlock(Kinked(), wm.FixedStep.of("euler", steps=steps))), ring(300)
    reference = reference_flow(subject, x, subject.forward(x, None), still=lambda *_: True)
    exact = subject.forward(x, lambda _: wm.FixedStep.of("rk4", steps=8192), double=True)
    assert reference.converged
    assert reference.done is not None
    assert reference.error is not None
    truth = np.median(distance(end_of, reference.done, exact))
    assert truth / 5 < np.median(reference.error) < 30 * truth


@pytest.mark.parametrize("blocks", [1, 2, 5])
@pytest.mark.parametrize(
    ("own", "steps"),
    [
        (wm.FixedStep.of("euler", steps=1), (1, 2, 4, 7, 14)),
        (wm.FixedStep.of("euler", steps=2), (1, 2, 4, 7, 14)),
        (wm.FixedStep.of("euler", steps=64), (8, 16, 32, 56, 112)),
        (wm.FixedStep.of("rk4", steps=1), (1, 2, 4, 7, 14)),
        (wm.FixedStep.of("rk4", steps=16), (8, 16, 32, 56, 112)),
    ],
)
def test_refining_begins_at_what_the_own_error_asks_for(blocks: int, own: wm.FixedStep, steps: tuple[int, ...]) -> None:
    subject = ModelSubject(nn.Sequential(*(wm.ODEBlock(Rotation(1.0), own) for _ in range(blocks))))
    refined = refinements(subject, subject.forward(ring(), None))
    assert [next(refined).change(own) for _ in steps] == [wm.FixedStep.of("rk4", steps=n) for n in steps]


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("sizes", [(1.0, 0.5, 0.25), (1 / 2, 1 / 4, 1 / 7), (1 / 4, 1 / 7, 1 / 14)])
def test_differences_of_three_solves_tell_the_order_and_the_error_that_is_left(
    order: float, sizes: tuple[float, float, float]
) -> None:
    coarse, middle, fine = (3 * size**order for size in sizes)
    found = observed_order((middle - fine) / (coarse - middle), sizes)
    assert found == pytest.approx(order, abs=1e-3)
    assert (middle - fine) * left_over(found, sizes[1:]) == pytest.approx(fine, rel=1e-2)


class Beat(nn.Module):
    """z' = 1 + a cos(2 pi f t): the flow goes on by 1, whatever a is; at multiples of 1/f the rate is always 1 + a."""

    def __init__(self, frequency: int) -> None:
        super().__init__()
        self.frequency = frequency

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.ones_like(z) * (1 + torch.cos(2 * pi * self.frequency * t))


@pytest.mark.parametrize("frequency", [8, 16, 32, 64])
def test_a_feature_of_time_that_repeats_on_every_coarse_grid_is_seen_all_the_same(frequency: int) -> None:
    block = wm.ODEBlock(Beat(frequency), wm.FixedStep.of("euler", steps=2))
    subject, x = ModelSubject(block), ring()
    reference = reference_flow(subject, x, subject.forward(x, None), still=lambda *_: True)
    assert reference.converged
    assert reference.done is not None
    assert reference.done.outputs.numpy() == pytest.approx(x.numpy() + 1, abs=1e-2)


def test_tolerances_that_happen_to_take_the_same_steps_are_not_exact_for_that() -> None:
    subject = PredictSubject(lambda x, solver: x, wm.Adaptive("dopri54", tolerance=1e-3))
    x = torch.tensor([[3.0, 4.0]])
    reference = reference_flow(subject, x, subject.forward(x, None), still=lambda *_: True)
    assert reference.solver == "dopri54, tol = 1e-06"
    assert reference.error == pytest.approx(5e-6)


@pytest.mark.parametrize(
    ("solver", "budget"),
    [(wm.FixedStep("rk4", step=1 / 16), 20_000), (wm.Adaptive("dopri54", tolerance=1e-4), 30_000)],
)
def test_a_chaotic_field_is_called_chaotic(solver: Any, budget: int) -> None:
    verdict = audited(Lorenz(), solver, attractor(), (0.0, 20.0), evidence=False, budget=budget)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "chaotic: " in verdict.sentence
    assert "stiff" not in verdict.sentence


def test_a_stiff_field_is_called_stiff() -> None:
    verdict = audited(Linear(3e4), wm.FixedStep.of("euler", steps=2), ring())
    assert verdict.outcome is Outcome.UNDECIDED
    assert "stiff" in verdict.sentence
    assert "chaotic" not in verdict.sentence


def test_what_converges_fast_and_is_not_there_yet_is_not_called_slow() -> None:
    verdict = audited(Linear(500.0), wm.FixedStep.of("euler", steps=16), ring(), evidence=False, budget=2000)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "approach each other, but are still too far apart when the budget is spent: the field is" in verdict.sentence


def test_a_reference_that_first_blows_up_is_refined_until_it_does_not() -> None:
    verdict = audited(Linear(1000.0), wm.FixedStep.of("euler", steps=16), ring())
    assert verdict.reference.converged
    assert verdict.reference.error is not None
    assert verdict.reference.error < 1e-6
    assert verdict.outcome is Outcome.TIED


def test_a_flow_that_leaves_every_bound_while_the_own_solver_does_not_is_undecided() -> None:
    x = 1.5 * ring()
    verdict = audited(Square(), wm.FixedStep.of("euler", steps=8), x)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "not finite" in verdict.sentence


@pytest.mark.parametrize(("times", "step"), [((0.0, 100.0), 0.5), ((0.0, 0.01), 0.5), ((0.0, 0.01), 10.0)])
def test_long_and_short_time_spans_get_a_reference_all_the_same(times: tuple[float, float], step: float) -> None:
    speed = 3 / times[1]
    verdict = audited(Rotation(speed), wm.FixedStep("euler", step=step), ring(), times)
    assert verdict.reference.converged
    finest = ModelSubject(wm.ODEBlock(Rotation(speed), wm.FixedStep("rk4", step=times[1] / 1000), times=times))
    exact = finest.forward(ring(), None, double=True)
    rough = ModelSubject(wm.ODEBlock(Rotation(speed), wm.FixedStep("euler", step=step), times=times))
    assert verdict.own.error == pytest.approx(np.median(distance(end_of, rough.forward(ring(), None), exact)), rel=1e-2)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize("method", ["fehlberg21", "dopri54"])
def test_steps_chosen_for_the_whole_batch_are_no_batch_statistics(method: str, tolerance: float) -> None:
    verdict = audited(Kinked(), wm.Adaptive(method, tolerance=tolerance), ring(), evidence=False)
    assert verdict.reference.converged
    assert "batch" not in verdict.sentence


class Insists(Rotation):
    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return z.float() @ self.matrix


class Casts(Rotation):
    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return (z.float() @ self.matrix.float()).float()


@pytest.mark.parametrize("field", [Insists(3.0), Casts(3.0)])
def test_a_block_that_hard_codes_float32_gets_such_a_reference_and_a_note(field: nn.Module) -> None:
    verdict = audited(field, wm.FixedStep.of("euler", steps=64), ring())
    assert verdict.outcome is Outcome.FLOW
    assert verdict.reference.dtype == "float32"
    assert any("hard-codes float32" in note for note in verdict.notes)


class Lengthening(Rotation):
    """The length of the path is integrated beside the state."""

    def forward(self, t: Tensor, z: Any) -> Any:
        rate = super().forward(t, z[0])
        return rate, rate.norm(dim=1, keepdim=True)


class Lengthened(nn.Module):
    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.dtype = dtype
        self.block = wm.ODEBlock(Lengthening(3.0), wm.FixedStep.of("euler", steps=64))

    def forward(self, x: Tensor) -> Any:
        return self.block((x, torch.zeros(len(x), 1, dtype=self.dtype)))[0]


def test_a_state_that_begins_with_zeros_of_no_dtype_gets_a_reference_in_float64() -> None:
    model = Lengthened(None)
    verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())))
    assert (verdict.outcome, verdict.reference.dtype, verdict.notes) == (Outcome.FLOW, "float64", ())


def test_a_state_that_begins_with_zeros_of_float32_gets_such_a_reference_and_advice() -> None:
    model = Lengthened(torch.float32)
    verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())))
    assert (verdict.outcome, verdict.reference.dtype) == (Outcome.FLOW, "float32")
    assert any("x.new_zeros" in note for note in verdict.notes)


def test_a_predict_whose_evaluations_cannot_be_seen_comes_to_an_end() -> None:
    def predict(x: Tensor, solver: Any) -> Any:
        noise = np.random.default_rng(round(1 / solver.precision))
        return noise.normal(size=(len(x), 2))

    verdict = wm.audit(predict, (ring(), torch.zeros(400)), trained_with=wm.FixedStep.of("euler", steps=4))
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.reference.dtype == "its own precision"


def test_blocks_of_fixed_and_of_adaptive_steps_stand_side_by_side() -> None:
    kinds: list[Any] = [wm.FixedStep.of("euler", steps=64), wm.Adaptive("dopri54", tolerance=1e-4)]
    for solvers in (kinds, kinds[::-1]):
        model = nn.Sequential(*(wm.ODEBlock(Rotation(1.0), s) for s in solvers), right_of_zero())
        verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())))
        assert verdict.outcome is Outcome.FLOW


def test_a_regression_whose_mean_score_still_moves_has_no_reference_yet() -> None:
    """A few samples on the attractor among many at rest: medians alone would call that converged."""
    x = torch.cat([attractor(10), torch.zeros(30, 3) + 1e-6])

    def squared(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().sum(dim=1)

    block = wm.ODEBlock(Lorenz(), wm.FixedStep("rk4", step=1 / 16), times=(0.0, 30.0))
    verdict = wm.audit(nn.Sequential(block), (x, x), metric=squared, threshold=0.1, evidence=False, budget=30_000)
    assert verdict.outcome is Outcome.UNDECIDED


def test_outputs_of_another_library_that_are_not_finite_are_a_sentence() -> None:
    def predict(x: Tensor, solver: Any) -> Any:
        return np.full((len(x), 2), np.nan)

    with pytest.raises(AuditError, match="not finite for 400 of 400 samples"):
        wm.audit(predict, (ring(), torch.zeros(400)), trained_with=wm.FixedStep.of("euler", steps=4))


def test_a_reference_of_few_steps_has_to_hold_for_most_samples_and_not_for_the_middling_one_alone() -> None:
    own = np.full(100, 2.0)
    still, moved = np.full(100, 1e-4), np.full(100, 1e-4)
    moved[:12] = 0.5
    assert _holds_for_most(still, own)
    assert not _holds_for_most(moved, own)
    assert _holds_for_most(moved, np.where(moved > 0.1, 50.0, 2.0))
