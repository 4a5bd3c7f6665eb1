"""With the real Lightning, under each of its names that is installed."""

import importlib
import math
import re
import sys
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from windermere.adaptation import (
    Controller,
    ControllerState,
    Score,
    SteadySteps,
    SteadyTolerances,
    StepAdaptation,
    ToleranceAdaptation,
)
from windermere.adaptation.signals import moved_mass, relative_distance
from windermere.errors import NonFiniteError, SolverError, StepBudgetError, UsageError, VanishingStepError
from windermere.nn import Autonomous, ODEBlock, using
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver, counting

pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:(GPU|TPU) available but not used"),
    pytest.mark.filterwarnings("ignore:The `srun` command is available on your system but is not used"),
]
CALLBACK = "windermere.adaptation.lightning"
NAMES = ("lightning.pytorch", "pytorch_lightning")
INSTALLED = [name for name in NAMES if find_spec(name.partition(".")[0])]
CONTROLLER = StepAdaptation(train="euler", check="midpoint", every=20)
STEADY = SteadySteps(train="euler", check="midpoint", every=20, target=1e-4)
EAGER, EAGER_START = SteadySteps(train="euler", check="midpoint", every=1, target=0.5), FixedStep("euler", step=0.5)
"""Reviews the first batch already, at a step that is large enough to tell solvers apart; any distance is believed."""


def imported(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


class Kit:
    """Lightning under one of its names, what is made for it, and what the tests build of both."""

    def __init__(self, name: str) -> None:
        self.use(name)
        self.callback = imported(CALLBACK)

    def use(self, name: str) -> None:
        self.pl = imported(name)
        self.Classifier = classifier(self.pl)

    def adapt(self, controller: Controller, **options: Any) -> Any:
        return self.callback.AdaptPrecision(controller, **options)

    def trainer(self, steps: int, *callbacks: Any, **options: Any) -> Any:
        return self.pl.Trainer(
            accelerator="cpu",
            max_steps=steps,
            callbacks=list(callbacks),
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            **options,
        )

    def fitted(self, adapt: Any, solver: Solver, steps: int = 120) -> tuple[Any, Any]:
        module, fit = self.Classifier(solver), self.trainer(steps, adapt)
        fit.fit(module, batches())
        return module, fit


@pytest.fixture(params=INSTALLED)
def kit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kit:
    """As for a user who has imported this name alone."""
    for name in {*NAMES, CALLBACK} - {request.param}:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return Kit(request.param)


def classifier(pl: Any) -> Any:
    class Classifier(pl.LightningModule):  # type: ignore[misc]
        """Two ODE blocks, dropout and a batch norm: what a review must leave alone."""

        def __init__(self, solver: Solver, dropout: float = 0.1) -> None:
            super().__init__()
            torch.manual_seed(0)
            blocks = [
                ODEBlock(Autonomous(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))), solver) for _ in "ab"
            ]
            self.model = nn.Sequential(blocks[0], nn.BatchNorm1d(2), nn.Dropout(dropout), blocks[1], nn.Linear(2, 2))
            self.blocks = blocks
            self.used: list[Solver] = []

        def forward(self, x: Tensor) -> Any:
            return self.model(x)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            assert self.training
            self.used.append(self.blocks[0].solver)
            x, y = batch
            return F.cross_entropy(self(x), y)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    return Classifier


def batches(size: int = 16, samples: int = 128) -> DataLoader[Any]:
    x = torch.randn(samples, 2, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=size)


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
    assert "adapt/signal" not in fit.callback_metrics


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
    assert asked == [FixedStep("euler", step=0.2), checks[0], FixedStep("euler", step=0.1), checks[1]]
    assert adapt.state.precision == 0.05


# ---------------------------------------------------------------------------------------------------------
# Steady controllers


def first_review(kit: Kit, adapt: Any) -> tuple[Any, Any]:
    """The module before any update, and what a review of its first batch decides."""
    module = kit.Classifier(EAGER_START)
    adapt.on_fit_start(None, module)
    adapt.on_train_batch_start(kit.trainer(1), module, next(iter(batches())), 0)
    return module, adapt._reviewed.decision


def outputs_of(module: Any, decision: Any) -> tuple[Tensor, Tensor]:
    """What training and check solver of a decision give for the first batch, in eval mode."""
    module.eval()
    found = []
    for solver in (EAGER_START, FixedStep("midpoint", step=decision.check_precision)):
        with using(module, solver), torch.no_grad():
            found.append(module(next(iter(batches()))[0]))
    return found[0], found[1]


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
    assert [solver.method for solver in calls] == ["euler", "midpoint"]


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


# ---------------------------------------------------------------------------------------------------------
# Batches that cannot be compared, and solves that blow up

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


# ---------------------------------------------------------------------------------------------------------
# What a review leaves alone, and what a checkpoint keeps


def test_a_review_leaves_weights_statistics_and_random_numbers_as_they_were(kit: Kit) -> None:
    never: Controller = StepAdaptation(train="euler", check="midpoint", every=1000)
    still: Controller = StepAdaptation(train="euler", check="midpoint", every=20, increase=1 + 1e-12)
    plain, watched = (kit.fitted(kit.adapt(c), FixedStep("euler", step=0.26))[0].state_dict() for c in (never, still))
    assert all(torch.equal(plain[name], watched[name]) for name in plain)


@pytest.mark.parametrize(
    "controller",
    [
        ToleranceAdaptation(train="fehlberg21", every=5, check_ratio=1e-6, increase=1.5),
        SteadyTolerances(train="fehlberg21", every=5, check_ratio=1e-6, target=0.5),
    ],
    ids=["paper", "steady"],
)
def test_a_check_below_what_float32_resolves_is_solved_in_float64(kit: Kit, controller: Controller) -> None:
    adapt = kit.adapt(controller)
    module, _ = kit.fitted(adapt, Adaptive("fehlberg21", tolerance=1e-3), steps=10)
    assert adapt.state.precision > 1e-3
    assert all(parameter.dtype == torch.float32 for parameter in module.parameters())
    assert all("forward" not in vars(block) for block in module.blocks)


def test_of_several_blocks_the_longest_solve_says_whether_there_are_hardly_any_steps(kit: Kit) -> None:
    solver, (x, _) = Adaptive("dopri54", tolerance=1e-4), next(iter(batches()))
    with counting() as count:
        kit.Classifier(solver).eval()(x)
    assert 1 < count.longest < count.steps
    for least, raised in ((count.longest, False), (count.longest - 1, True)):
        adapt = kit.adapt(ToleranceAdaptation(train="dopri54", every=1, threshold=0.9, min_steps=least))  # type: ignore[arg-type]
        kit.fitted(adapt, solver, steps=1)
        assert (adapt.state.precision > solver.precision) is raised


@pytest.mark.parametrize("controller", [CONTROLLER, STEADY], ids=["paper", "steady"])
def test_a_run_resumed_from_a_lightning_checkpoint_goes_on_as_if_never_stopped(
    kit: Kit, tmp_path: Path, controller: Controller
) -> None:
    def fit(adapt: Any, epochs: int, **resume: Any) -> tuple[Any, Any]:
        module = kit.Classifier(FixedStep("euler", step=0.7 if resume else 0.1), dropout=0.0)
        trainer = kit.trainer(-1, adapt, max_epochs=epochs)  # whole ones: within one, Lightning resumes elsewhere
        trainer.fit(module, batches(), **resume)
        return module, trainer

    uninterrupted, resumed = kit.adapt(controller), kit.adapt(controller)
    whole, _ = fit(uninterrupted, 11)
    fit(kit.adapt(controller), 6)[1].save_checkpoint(tmp_path / "half.ckpt")
    rest, _ = fit(resumed, 11, ckpt_path=tmp_path / "half.ckpt")
    assert rest.used == whole.used[48:]
    assert len(set(whole.used)) > 2
    assert resumed.state_dict() == uninterrupted.state_dict()
    assert (resumed.state.reviews, resumed.state_dict()["batches"]) == (4, 88)


def test_a_model_loaded_from_a_checkpoint_gets_back_the_solver_it_was_adapted_to(kit: Kit, tmp_path: Path) -> None:
    adapt, start, file = kit.adapt(CONTROLLER), FixedStep("euler", step=0.1), tmp_path / "adapted.ckpt"
    module, trainer = kit.fitted(adapt, start, steps=40)
    trainer.save_checkpoint(file)
    kept = module.blocks[0].solver

    class Whole(kit.Classifier):  # type: ignore[misc, name-defined]
        def on_load_checkpoint(self, checkpoint: Any) -> None:
            kit.callback.install_adapted(self, checkpoint)

    bare, whole = (
        kind.load_from_checkpoint(file, solver=start, weights_only=False) for kind in (kit.Classifier, Whole)
    )
    assert (kept, [b.solver for b in bare.blocks], [b.solver for b in whole.blocks]) == (
        CONTROLLER.solver(adapt.state),
        [start] * 2,
        [kept] * 2,
    )
    assert kept != start
    assert kit.callback.install_adapted(bare, file) == bare.blocks[1].solver == kept


def test_a_checkpoint_that_is_missing_has_no_adapted_solver_or_has_code_is_named(kit: Kit, tmp_path: Path) -> None:
    module, trainer = kit.Classifier(EAGER_START), kit.trainer(1)
    trainer.fit(module, batches())
    trainer.save_checkpoint(tmp_path / "plain.ckpt")
    with pytest.raises(UsageError, match="this checkpoint holds no adapted solvers"):
        kit.callback.install_adapted(module, tmp_path / "plain.ckpt")
    torch.save({"hyper_parameters": {"solver": EAGER_START}}, tmp_path / "objects.ckpt")
    with pytest.raises(UsageError, match="reading it may run code"):
        kit.callback.install_adapted(module, tmp_path / "objects.ckpt")
    with pytest.raises(UsageError, match=r"nowhere\.ckpt cannot be read: No such file"):
        kit.callback.install_adapted(module, tmp_path / "nowhere.ckpt")
    torch.save([1], tmp_path / "list.ckpt")
    with pytest.raises(UsageError, match="this checkpoint holds no adapted solvers"):
        kit.callback.install_adapted(module, tmp_path / "list.ckpt")
    for contents in (b"", b"garbage", (tmp_path / "plain.ckpt").read_bytes()[:1000]):
        (tmp_path / "damaged.ckpt").write_bytes(contents)
        with pytest.raises(UsageError, match=r"damaged\.ckpt is damaged, or no checkpoint of Lightning's"):
            kit.callback.install_adapted(module, tmp_path / "damaged.ckpt")


# ---------------------------------------------------------------------------------------------------------
# What is refused


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
    with pytest.raises(ImportError, match=r"windermere\[lightning\]"):
        importlib.import_module(CALLBACK)
