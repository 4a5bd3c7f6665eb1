"""What loggers get of reviews, and first batches that no review could score."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.adaptation.kit import CONTROLLER, STEADY, WARNINGS, Kit, batches, remembering
from windermere.adaptation import Controller, ToleranceAdaptation, error_ratio
from windermere.errors import UsageError
from windermere.solvers import Adaptive, FixedStep, Solver

pytestmark = WARNINGS


@pytest.mark.parametrize(("controller", "decisions"), [(CONTROLLER, {1.0}), (STEADY, {-1.0})])
def test_loggers_get_every_review_however_seldom_the_trainer_logs(
    kit: Kit, controller: Controller, decisions: set[float]
) -> None:
    logger, adapt = remembering(kit.pl), kit.adapt(controller)
    fit = kit.trainer(60, adapt, logger=logger, log_every_n_steps=50)
    fit.fit(kit.Classifier(FixedStep("euler", step=0.1)), batches())
    reviews = [(step, told) for step, told in logger.told if "adapt/precision" in told]
    assert [step for step, _ in reviews] == [20, 40, 60]
    assert {told["adapt/decision"] for _, told in reviews} == decisions
    last = reviews[-1][1]
    assert last["adapt/precision"] == adapt.state.precision
    done = adapt.state.decision
    watched = abs(done.trained - done.checked) if done.signal is None else done.signal
    assert last["adapt/signal"] == pytest.approx(watched)


def without_outputs(module: Any, batch: Any) -> float:
    module(batch[0])
    return 0.5


def squared(module: Any, batch: Any) -> tuple[float, Any]:
    outputs = module(batch[0])
    return 40.0, outputs


def broken(module: Any, batch: Any) -> float:
    return float(batch["labels"])


@pytest.mark.parametrize(
    ("controller", "options", "words"),
    [
        (STEADY, {"score": without_outputs}, "needs scores with a distance"),
        (STEADY, {"score": without_outputs, "distance": error_ratio}, "return \\(value, outputs\\)"),
        (CONTROLLER, {"score": squared}, "a score of 40 is no accuracy"),
        (CONTROLLER, {"score": broken}, "cannot score the first batch, since its score or distance raises TypeError: "),
        (STEADY, {"score": squared, "distance": lambda a, b: torch.ones(3)}, "its score or distance raises "),
    ],
)
def test_a_first_batch_that_cannot_be_scored_is_told_before_it_is_trained_on(
    kit: Kit, controller: Controller, options: dict[str, Any], words: str
) -> None:
    module = kit.Classifier(FixedStep("euler", step=0.1))
    with pytest.raises(UsageError, match=words):
        kit.trainer(5, kit.adapt(controller, **options)).fit(module, batches())
    assert module.used == []


@pytest.mark.parametrize("controller", [replace(CONTROLLER, every=50), replace(STEADY, every=50)])
def test_a_first_batch_of_one_sample_is_no_reason_to_stop(kit: Kit, controller: Controller) -> None:
    module = kit.Classifier(FixedStep("euler", step=0.1))
    module.model[1] = nn.Identity()  # batch norm refuses one sample
    kit.trainer(3, kit.adapt(controller)).fit(module, batches(size=1))
    assert len(module.used) == 3


def test_the_check_of_the_first_batch_decides_nothing(kit: Kit) -> None:
    solver: Solver = Adaptive("dopri54", tolerance=1e-4)
    adapt = kit.adapt(ToleranceAdaptation(train="dopri54", tighten=True))
    kit.fitted(adapt, solver, steps=2)
    assert (adapt.state.precision, adapt.state.reviews, adapt.state.decision) == (1e-4, 0, None)
