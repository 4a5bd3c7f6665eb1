"""Steady controllers within Lightning, batches that cannot be compared, and solves that blow up."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.adaptation.kit import (
    CONTROLLER,
    EAGER,
    EAGER_START,
    STEADY,
    WARNINGS,
    Kit,
    batches,
    first_review,
    outputs_of,
)
from windermere.adaptation import (
    Controller,
    Score,
    SteadySteps,
    SteadyTolerances,
)
from windermere.adaptation.signals import moved_mass, relative_distance
from windermere.errors import NonFiniteError, SolverError, StepBudgetError, UsageError, VanishingStepError
from windermere.solvers import Adaptive, FixedStep, Solver

pytestmark = WARNINGS


def test_a_first_signal_is_the_share_of_mass_that_the_check_solver_moves_on_that_batch(kit: Kit) -> None:
    module, decision = first_review(kit, kit.adapt(EAGER))
    moved = float(moved_mass(*outputs_of(module, decision)))
    assert moved > 1e-3
    assert decision.signal == pytest.approx(moved)


@pytest.mark.parametrize("start", [1.0, 0.02])
def test_steps_from_coarse_and_from_fine_settle_where_a_finer_solver_moves_about_the_target(
    kit: Kit, start: float
) -> None:
    adapt = kit.adapt(SteadySteps(train="euler", check="midpoint", every=2, target=0.01), start=start)
    module, fit = kit.fitted(adapt, FixedStep("euler", step=0.5), steps=80)
    assert module.used[0].precision == start
    assert 0.02 < adapt.state.precision < 1.0
    assert 0.004 < adapt.state.decision.signal < 0.015
    assert float(fit.callback_metrics["adapt/signal"]) == pytest.approx(adapt.state.decision.signal)


def test_tolerances_that_hardly_matter_grow_within_lightning(kit: Kit) -> None:
    adapt = kit.adapt(SteadyTolerances(train="fehlberg21", every=5, target=0.5))
    module, _ = kit.fitted(adapt, Adaptive("fehlberg21", tolerance=1e-5), steps=20)
    used = [solver.precision for solver in module.used]
    assert used == sorted(used)
    assert len(set(used)) == 4
    assert adapt.state.decision.signal < 0.25


def test_a_regression_is_steady_with_a_distance_of_its_own(kit: Kit) -> None:
    def score(module: Any, batch: Any) -> tuple[float, Tensor]:
        outputs = module(batch[0])
        return -float((outputs - batch[0]).square().mean()), outputs

    module, decision = first_review(kit, kit.adapt(EAGER, score=score, distance=relative_distance))
    trained, checked = outputs_of(module, decision)
    assert decision.signal == pytest.approx(float(relative_distance(trained, checked)))
    assert decision.trained == pytest.approx(-float((trained - next(iter(batches()))[0]).square().mean()))


def test_every_solver_that_a_review_asks_for_runs_the_batch_once(kit: Kit) -> None:
    calls: list[Solver] = []

    def score(module: Any, batch: Any) -> tuple[float, Tensor]:
        calls.append(module.blocks[0].solver)
        found: tuple[float, Tensor] = kit.callback.accuracy_and_logits(module, batch)
        return found

    adapt = kit.adapt(STEADY, score=score, distance=moved_mass)
    kit.fitted(adapt, FixedStep("euler", step=0.1), steps=20)
    assert [solver.method for solver in calls] == ["euler", "euler", "midpoint"]  # once for the very first batch


def test_of_logits_with_pixels_every_pixel_is_a_sample(kit: Kit) -> None:
    x = torch.randn(4, 3, 5, 6, generator=torch.Generator().manual_seed(0))
    y = x.argmax(dim=1)
    y[:2] = (y[:2] + 1) % 3
    value, logits = kit.callback.accuracy_and_logits(nn.Identity(), (x, y))
    assert value == 0.5
    assert torch.equal(logits.reshape(4, 5, 6, 3), x.permute(0, 2, 3, 1))


@pytest.mark.parametrize(
    ("distance", "sentence"),
    [(moved_mass, r"let score\(module, batch\) return \(value, outputs\)"), (None, "needs scores with a distance")],
)
def test_a_score_that_lacks_what_a_steady_controller_looks_at_is_named(kit: Kit, distance: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        first_review(kit, kit.adapt(EAGER, score=lambda module, batch: 0.5, distance=distance))


def test_what_is_no_controller_is_refused_before_a_fit(kit: Kit) -> None:
    with pytest.raises(UsageError, match="a controller is a StepAdaptation"):
        kit.adapt("paper")  # type: ignore[arg-type]


FIFTH = replace(STEADY, every=5)
"""Of 65 samples in batches of 16, every fifth has one sample."""


def fit_on_65_samples(kit: Kit, adapt: Any, steps: int, size: int = 16) -> list[float]:
    """The steps it was trained with."""
    module = kit.Classifier(FixedStep("euler", step=0.5))
    module.model[1] = nn.Identity()  # a batch norm does not train on one sample
    kit.trainer(steps, adapt).fit(module, batches(size, samples=65))
    return [solver.precision for solver in module.used]


def test_a_review_that_falls_on_a_batch_of_one_sample_happens_on_the_next_one(kit: Kit) -> None:
    adapt = kit.adapt(FIFTH)
    assert fit_on_65_samples(kit, adapt, steps=12) == [0.5] * 6 + [0.25] * 5 + [0.125]
    assert adapt.state.reviews == 2


def test_a_review_that_was_put_off_is_kept_in_a_checkpoint(kit: Kit) -> None:
    first, resumed = kit.adapt(FIFTH), kit.adapt(FIFTH)
    fit_on_65_samples(kit, first, steps=5)
    resumed.load_state_dict(first.state_dict())
    assert (fit_on_65_samples(kit, resumed, steps=1), resumed.state.precision) == ([0.5], 0.25)


def test_a_review_is_put_off_where_another_rank_has_only_one_sample(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Score] = []

    def averaged_with_a_rank_of_one_sample(score: Score) -> Score:
        told.append(score)
        return replace(score, value=(score.value + 1) / 2)

    adapt, module = kit.adapt(EAGER), kit.Classifier(EAGER_START)
    adapt.on_fit_start(None, module)
    monkeypatch.setattr(kit.callback, "averaged", averaged_with_a_rank_of_one_sample)
    adapt.on_train_batch_start(kit.trainer(1), module, next(iter(batches())), 0)
    assert told == [Score(value=0.0)]
    assert adapt._reviewed is None


def test_a_batch_that_failed_after_its_review_was_put_off_can_be_had_again(kit: Kit) -> None:
    adapt, module = kit.adapt(FIFTH), kit.Classifier(EAGER_START)
    fit_on_65_samples(kit, adapt, steps=4)
    for _ in "ab":
        adapt.on_train_batch_start(kit.trainer(1), module, next(iter(batches(size=1))), 4)
        adapt.load_state_dict(adapt.state_dict())
    assert adapt._reviewed is None


def test_where_all_batches_have_one_sample_a_steady_controller_names_it(kit: Kit) -> None:
    with pytest.raises(UsageError, match="at least 2 samples"):
        fit_on_65_samples(kit, kit.adapt(FIFTH), steps=10, size=1)


class FiniteOnHalves(nn.Module):
    """A field that is finite only where Euler's method with a step of 1/2 looks."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.where(2 * t == (2 * t).round(), z, torch.inf)


@pytest.mark.parametrize("controller", [replace(CONTROLLER, every=1), EAGER], ids=["paper", "steady"])
def test_a_check_that_blows_up_refines_and_training_goes_on(kit: Kit, controller: Controller) -> None:
    adapt, module = kit.adapt(controller), kit.Classifier(EAGER_START)
    module.blocks[1].field = FiniteOnHalves()
    kit.trainer(1, adapt).fit(module, batches())
    assert adapt.state.precision == 0.25
    assert math.isnan(adapt.state.decision.checked)


@pytest.mark.parametrize("error", [NonFiniteError, StepBudgetError, VanishingStepError])
def test_a_larger_step_that_blows_up_is_not_taken_but_the_training_step_must_not(
    kit: Kit, error: type[SolverError]
) -> None:
    def score(module: Any, batch: Any) -> float:
        if module.blocks[0].solver.precision > 0.5:
            raise error("beyond a half")
        return 1.0

    def reviewed(start: float) -> Any:
        adapt = kit.adapt(replace(CONTROLLER, every=1), score=score, start=start)
        return first_review(kit, adapt)[1]

    decision = reviewed(0.5)
    assert decision.after == 0.5
    assert math.isnan(decision.raised)
    with pytest.raises(error):
        reviewed(0.6)
