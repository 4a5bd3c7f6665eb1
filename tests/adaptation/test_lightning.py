"""With the real Lightning, under each of its names that is installed."""

import importlib
import re
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.adaptation.kit import (
    CALLBACK,
    CONTROLLER,
    INSTALLED,
    NAMES,
    STEADY,
    WARNINGS,
    Kit,
    batches,
)
from windermere.adaptation import (
    Controller,
    ControllerState,
    SteadyTolerances,
    ToleranceAdaptation,
)
from windermere.errors import UsageError
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver

pytestmark = WARNINGS


def test_the_callback_is_of_the_lightning_that_is_already_imported(kit: Kit) -> None:
    assert issubclass(kit.callback.AdaptPrecision, kit.pl.Callback)


@pytest.mark.skipif(len(INSTALLED) < 2, reason="only one of Lightning's names is installed")
def test_a_callback_of_one_name_adapts_under_a_trainer_of_the_other(kit: Kit) -> None:
    adapt = kit.adapt(CONTROLLER)
    kit.use(next(name for name in INSTALLED if name != kit.pl.__name__))
    assert not isinstance(adapt, kit.pl.Callback)
    module, _ = kit.fitted(adapt, FixedStep("euler", step=0.1), steps=40)
    assert module.used[-1].precision == pytest.approx(0.11)


def test_agreeing_scores_raise_the_step_of_all_blocks_after_every_twentieth_batch(kit: Kit) -> None:
    adapt = kit.adapt(CONTROLLER)
    module, fit = kit.fitted(adapt, FixedStep("euler", step=0.1))
    steps = [solver.precision for solver in module.used]
    assert steps == pytest.approx([0.1 * 1.1 ** (n // 20) for n in range(120)])
    assert adapt.state.reviews == 6
    assert [block.solver for block in module.blocks] == [CONTROLLER.solver(adapt.state)] * 2
    assert float(fit.callback_metrics["adapt/precision"]) == pytest.approx(adapt.state.precision)
    assert float(fit.callback_metrics["adapt/decision"]) == 1


def test_the_papers_algorithms_review_a_batch_of_one_sample(kit: Kit) -> None:
    adapt, module = kit.adapt(replace(CONTROLLER, every=1)), kit.Classifier(FixedStep("euler", step=0.1))
    adapt.on_fit_start(None, module)
    adapt.on_train_batch_start(kit.trainer(1), module, next(iter(batches(size=1))), 0)
    assert adapt._reviewed.precision == pytest.approx(0.11)


def test_the_users_own_score_decides_and_is_asked_for_without_gradients_in_eval_mode(kit: Kit) -> None:
    asked: list[Solver] = []

    def score(module: Any, batch: Any) -> float:
        assert not module.training
        assert not torch.is_grad_enabled()
        asked.append(module.blocks[1].solver)
        module(batch[0])
        return 1.0 if asked[-1].method == "euler" else 0.0

    adapt = kit.adapt(CONTROLLER, start=0.2, score=score)
    module, _ = kit.fitted(adapt, FixedStep("euler", step=0.1), steps=40)
    assert [solver.precision for solver in module.used] == [0.2] * 20 + [0.1] * 20
    checks = [CONTROLLER.check_solver(0.2), CONTROLLER.check_solver(0.1)]
    first, *asked = asked  # the first batch is scored, to tell at once where it cannot be
    assert first == FixedStep("euler", step=0.2)
    assert asked == [FixedStep("euler", step=0.2), checks[0], FixedStep("euler", step=0.1), checks[1]]
    assert adapt.state.precision == 0.05


def test_a_model_without_a_block_and_a_batch_without_labels_are_named(kit: Kit) -> None:
    module = kit.Classifier(FixedStep("euler", step=0.1))
    with pytest.raises(UsageError, match="give it a score"):
        kit.adapt(CONTROLLER).score(module, torch.zeros(3, 2))
    module.model, module.blocks = nn.Sequential(nn.Linear(2, 2)), []
    with pytest.raises(UsageError, match="no ODEBlock"):
        kit.trainer(1, kit.adapt(CONTROLLER)).fit(module, batches())


TOLERANCES = ToleranceAdaptation(train="dopri54")


@pytest.mark.parametrize(
    ("controller", "solver"),
    [
        (CONTROLLER, Adaptive("dopri54", tolerance=1e-3)),
        (CONTROLLER, FixedStep("midpoint", step=0.1)),
        (STEADY, OnGrid("euler", (0.0, 0.1, 1.0))),
        (TOLERANCES, FixedStep("euler", step=0.1)),
        (TOLERANCES, Adaptive("tsit54", tolerance=1e-3)),
        (TOLERANCES, Adaptive("dopri54", rtol=1e-3, atol=1e-6)),
        (TOLERANCES, Adaptive("dopri54", tolerance=1e-3, control="sample")),
        (SteadyTolerances(train="dopri54"), Adaptive("dopri54", tolerance=1e-3, max_steps=50)),
    ],
)
def test_a_block_whose_solver_is_not_the_controllers_is_named(kit: Kit, controller: Controller, solver: Solver) -> None:
    module, adapt = kit.Classifier(controller.solver(controller.start(0.01))), kit.adapt(controller, start=0.01)
    adapt.on_fit_start(None, module)
    module.blocks[1].solver = solver
    theirs = controller.solver(ControllerState(precision=solver.precision))
    with pytest.raises(UsageError, match=re.escape(f"'model.3' has {solver!r}")) as caught:
        kit.adapt(controller, start=0.01).on_fit_start(None, module)
    assert f"would become {theirs!r}" in str(caught.value)
    assert module.blocks[1].solver is solver


@pytest.mark.parametrize("times", [(0.0, 10.0), (5.0, 1.0, -5.0)])
def test_a_block_whose_times_span_another_length_than_the_controllers_is_named(
    kit: Kit, times: tuple[float, ...]
) -> None:
    module = kit.Classifier(FixedStep("euler", step=0.1))
    for block in module.blocks:
        block.times = times
    with pytest.raises(UsageError, match=r"'model.0' spans a time of 10.* span=10"):
        kit.adapt(STEADY).on_fit_start(None, module)
    kit.adapt(replace(STEADY, span=10.0)).on_fit_start(None, module)
    module = kit.Classifier(Adaptive("dopri54", tolerance=1e-3))
    module.blocks[0].times = times
    kit.adapt(TOLERANCES).on_fit_start(None, module)  # tolerances are the same for all times


@pytest.mark.parametrize(("x", "y"), [((4,), (4,)), ((4, 1), (4,)), ((4, 3), (4, 1)), ((3, 3), (3, 3))], ids=str)
def test_outputs_that_are_no_logits_of_the_labels_are_named_rather_than_misread(
    kit: Kit, x: tuple[int, ...], y: tuple[int, ...]
) -> None:
    with pytest.raises(UsageError, match=r"not \[.*\] of \[.*\]: for others give it a score"):
        kit.callback.accuracy_and_logits(nn.Identity(), (torch.zeros(x), torch.zeros(y, dtype=torch.int64)))


def test_without_lightning_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", *NAMES):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, CALLBACK, raising=False)
    with pytest.raises(ImportError, match=r"windermere-ode\[lightning\]"):
        importlib.import_module(CALLBACK)
