"""Lightning's trainer and models for it, under each of its names that is installed."""

import importlib
import warnings
from importlib.util import find_spec
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from windermere.adaptation import (
    Controller,
    SteadySteps,
    StepAdaptation,
)
from windermere.nn import Autonomous, ODEBlock, using
from windermere.solvers import FixedStep, Solver

WARNINGS = [
    pytest.mark.filterwarnings("ignore:The '.*dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:(GPU|TPU) available but not used"),
    pytest.mark.filterwarnings("ignore:The number of training batches .* is smaller than the logging interval"),
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
            enable_progress_bar=False,
            enable_model_summary=False,
            **{"logger": False, "enable_checkpointing": False, **options},
        )

    def fitted(self, adapt: Any, solver: Solver, steps: int = 120) -> tuple[Any, Any]:
        module, fit = self.Classifier(solver), self.trainer(steps, adapt)
        fit.fit(module, batches())
        return module, fit


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


def remembering(pl: Any) -> Any:
    """A logger of Lightning's that keeps all that it is told."""

    class Remembering(pl.loggers.Logger):  # type: ignore[misc]
        name, version = "remembering", 0

        def __init__(self) -> None:
            super().__init__()
            self.told: list[tuple[int, dict[str, float]]] = []

        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            self.told.append((step or 0, metrics))

        def log_hyperparams(self, *_: Any, **__: Any) -> None:
            pass

    return Remembering()
