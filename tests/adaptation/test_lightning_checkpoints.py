"""What a review within Lightning leaves alone, and what a checkpoint keeps."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.adaptation.kit import CONTROLLER, EAGER_START, STEADY, WARNINGS, Kit, batches
from windermere.adaptation import (
    Controller,
    SteadyTolerances,
    StepAdaptation,
    ToleranceAdaptation,
)
from windermere.errors import UsageError
from windermere.solvers import Adaptive, FixedStep, counting

pytestmark = WARNINGS


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
