"""With the real Lightning, under whichever of its names is installed."""

import importlib
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from windermere.adaptation import Controller, StepAdaptation, ToleranceAdaptation
from windermere.errors import UsageError
from windermere.models import Autonomous, ODEBlock
from windermere.solvers import Adaptive, FixedStep, Solver

if TYPE_CHECKING:
    import pytorch_lightning as pl
else:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import lightning.pytorch as pl
        except ModuleNotFoundError:
            pl = pytest.importorskip("pytorch_lightning")

from windermere.adaptation.lightning import AdaptPrecision

pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]
CONTROLLER = StepAdaptation(train="euler", check="midpoint", every=20)


class Classifier(pl.LightningModule):
    """Two ODE blocks, dropout and a batch norm: what a review must leave alone."""

    def __init__(self, solver: Solver) -> None:
        super().__init__()
        torch.manual_seed(0)
        blocks = [
            ODEBlock(Autonomous(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))), solver) for _ in "ab"
        ]
        self.model = nn.Sequential(blocks[0], nn.BatchNorm1d(2), nn.Dropout(0.1), blocks[1], nn.Linear(2, 2))
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


def batches() -> DataLoader[Any]:
    x = torch.randn(128, 2, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=16)


def trainer(steps: int, *callbacks: pl.Callback) -> pl.Trainer:
    return pl.Trainer(
        accelerator="cpu",
        max_steps=steps,
        callbacks=list(callbacks),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )


def fitted(adapt: AdaptPrecision, solver: Solver, steps: int = 120) -> tuple[Classifier, pl.Trainer]:
    module, fit = Classifier(solver), trainer(steps, adapt)
    fit.fit(module, batches())
    return module, fit


def test_agreeing_scores_raise_the_step_of_all_blocks_after_every_twentieth_batch() -> None:
    adapt = AdaptPrecision(CONTROLLER)
    module, fit = fitted(adapt, FixedStep("euler", step=0.1))
    steps = [solver.precision for solver in module.used]
    assert steps == pytest.approx([0.1 * 1.1 ** (n // 20) for n in range(120)])
    assert adapt.state is not None
    assert adapt.state.reviews == 6
    assert [block.solver for block in module.blocks] == [CONTROLLER.solver(adapt.state)] * 2
    assert float(fit.callback_metrics["adapt/precision"]) == pytest.approx(adapt.state.precision)


def test_the_users_own_score_decides_and_is_asked_for_without_gradients_in_eval_mode() -> None:
    asked: list[Solver] = []

    def score(module: Any, batch: Any) -> float:
        assert not module.training
        assert not torch.is_grad_enabled()
        asked.append(module.blocks[1].solver)
        module(batch[0])
        return 1.0 if asked[-1].method == "euler" else 0.0

    adapt = AdaptPrecision(CONTROLLER, start=0.2, score=score)
    module, _ = fitted(adapt, FixedStep("euler", step=0.1), steps=40)
    assert [solver.precision for solver in module.used] == [0.2] * 20 + [0.1] * 20
    checks = [CONTROLLER.check_solver(0.2), CONTROLLER.check_solver(0.1)]
    assert asked == [FixedStep("euler", step=0.2), checks[0], FixedStep("euler", step=0.1), checks[1]]
    assert adapt.state is not None
    assert adapt.state.precision == 0.05


def test_a_review_leaves_weights_statistics_and_random_numbers_as_they_were() -> None:
    never: Controller = StepAdaptation(train="euler", check="midpoint", every=1000)
    still: Controller = StepAdaptation(train="euler", check="midpoint", every=20, increase=1 + 1e-12)
    plain, watched = (fitted(AdaptPrecision(c), FixedStep("euler", step=0.26))[0].state_dict() for c in (never, still))
    assert all(torch.equal(plain[name], watched[name]) for name in plain)


def test_a_check_below_what_float32_resolves_is_solved_in_float64() -> None:
    controller = ToleranceAdaptation(train="fehlberg21", every=5, check_ratio=1e-6, increase=1.5)
    adapt = AdaptPrecision(controller)
    module, _ = fitted(adapt, Adaptive("fehlberg21", tolerance=1e-3), steps=10)
    assert adapt.state is not None
    assert adapt.state.precision > 1e-3
    assert all(parameter.dtype == torch.float32 for parameter in module.parameters())
    assert all("forward" not in vars(block) for block in module.blocks)


def test_a_lightning_checkpoint_holds_the_state_and_a_resumed_run_goes_on_from_it(tmp_path: Path) -> None:
    whole, _ = fitted(AdaptPrecision(CONTROLLER), FixedStep("euler", step=0.1), steps=64)
    _, fit = fitted(AdaptPrecision(CONTROLLER), FixedStep("euler", step=0.1), steps=48)
    fit.save_checkpoint(tmp_path / "half.ckpt")
    adapt, resumed = AdaptPrecision(CONTROLLER), Classifier(FixedStep("euler", step=0.7))
    trainer(64, adapt).fit(resumed, batches(), ckpt_path=tmp_path / "half.ckpt")
    assert resumed.used == whole.used[48:]
    assert adapt.state is not None
    assert (adapt.state.reviews, adapt.state_dict()["batches"]) == (3, 64)


def test_a_model_without_a_block_and_a_batch_without_labels_are_named() -> None:
    module = Classifier(FixedStep("euler", step=0.1))
    with pytest.raises(UsageError, match="give it a score"):
        AdaptPrecision(CONTROLLER).score(module, torch.zeros(3, 2))
    module.model, module.blocks = nn.Sequential(nn.Linear(2, 2)), []
    with pytest.raises(UsageError, match="no ODEBlock"):
        trainer(1, AdaptPrecision(CONTROLLER)).fit(module, batches())


def test_without_lightning_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "windermere.adaptation.lightning")
    with pytest.raises(ImportError, match=r"windermere\[lightning\]"):
        importlib.import_module("windermere.adaptation.lightning")
