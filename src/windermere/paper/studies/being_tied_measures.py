"""What might be lost by being tied, measured on one model with its own solver: the way back, robustness, calibration,
another arithmetic, other batches, a longer time.

Shapes: n samples, d points, C classes.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import windermere as wm
from windermere.errors import SolverError
from windermere.paper.studies.recipe_measures import audited, costs
from windermere.paper.studies.rows import MAIN, RunRow, Table, Tables
from windermere.paper.studies.study import Finished
from windermere.paper.training import Labelled, RunConfig
from windermere.records import sparse

NOISE, DRAWS = (0.01, 0.02, 0.05), 5
"""Standard deviations of noise on inputs (shells are 0.1 apart), and how often it is drawn."""
ATTACKS, ATTACK_STEPS = (0.005, 0.01, 0.02), 20
"""The most by which projected gradient descent may change each coordinate, and its steps."""
BINS = 15
ALONE = 200
"""Samples that are classified one by one."""
FAR = 0.05
"""Half the gap between two shells."""
FINE = wm.FixedStep("rk4", step=1 / 256)


@dataclass(frozen=True, kw_only=True)
class TiedRow(RunRow):
    """One model with its own solver. Shares and accuracies are those of the test set."""

    iterations: int
    outcome: str | None = None
    flow_accuracy: float | None = None
    accuracy: float | None
    lost: float | None = None
    """Inputs that are not found again by solving back with the own solver: another input is nearer."""
    strayed: float | None = None
    """Inputs that come back further away than half the gap between shells."""
    strayed_finely: float | None = None
    """The same with a fine solver on the way back."""
    noise_1: float | None = None
    """Accuracy with noise of 0.01 on inputs, and so on."""
    noise_2: float | None = None
    noise_5: float | None = None
    attack_05: float | None = None
    """Accuracy under attacks of 0.005, and so on."""
    attack_10: float | None = None
    attack_20: float | None = None
    calibration_error: float | None = None
    loss: float | None = None
    """Mean cross-entropy."""
    bfloat16: float | None = None
    """Accuracy in bfloat16."""
    float64_changes: float | None = None
    """Decisions that are others in float64."""
    batch_changes: float | None = None
    """Decisions that are others where each sample is a batch of its own."""
    longer_125: float | None = None
    """Accuracy when solved until 1.25, with steps of the same size."""
    longer_150: float | None = None
    diverged_at: int | None = sparse()


TIED = Table(MAIN, TiedRow)
MEASURES = tuple(f.name for f in fields(TiedRow) if f.name not in {
    "run", "seed", "iterations", "outcome", "flow_accuracy", "accuracy", "diverged_at",
})  # fmt: skip
"""What is compared."""


def measure(run: Finished) -> Tables:
    rows = audited(run.name, run.name, run.trained, run.test_set, costs(run.folder))
    return Tables({TIED: [
        replace(
            TiedRow(
                run=run.name,
                seed=row.seed,
                iterations=row.iterations,
                outcome=row.outcome,
                flow_accuracy=row.flow_accuracy,
                accuracy=row.accuracy,
            ),
            **measured(run.trained.member(s), run.test_set),
        )
        for s, row in enumerate(rows)
    ]})  # fmt: skip


def lost_row(run: str, config: RunConfig, seed: int, iteration: int) -> TiedRow:
    return TiedRow(run=run, seed=seed, iterations=config.iterations, accuracy=None, diverged_at=iteration)


def measured(model: nn.Module, test_set: Labelled) -> dict[str, Any]:
    """Every measure of one model, by the name of its field."""
    x, y = test_set
    with torch.no_grad():
        logits = model(x)
        values = {
            **_ways_back(model, x),
            **dict(zip(("noise_1", "noise_2", "noise_5"), (_noisy(model, x, y, s) for s in NOISE), strict=True)),
            "calibration_error": calibration_error(logits, y),
            "loss": float(F.cross_entropy(logits, y)),
            "bfloat16": _accuracy(copy.deepcopy(model).bfloat16()(x.bfloat16()), y),
            "float64_changes": _changes(logits, copy.deepcopy(model).double()(x.double())),
            "batch_changes": _changes(logits[:ALONE], torch.cat([model(one[None]) for one in x[:ALONE]])),
            **dict(zip(("longer_125", "longer_150"), (_longer(model, x, y, t) for t in (1.25, 1.5)), strict=True)),
        }
    attacks = (_accuracy(model(attacked(model, x, y, most)).detach(), y) for most in ATTACKS)
    values |= dict(zip(("attack_05", "attack_10", "attack_20"), attacks, strict=True))
    return {name: float(f"{values[name]:.5g}") for name in MEASURES}


def _accuracy(logits: Tensor, y: Tensor) -> float:
    return float((logits.argmax(dim=1) == y).double().mean())


def _changes(logits: Tensor, others: Tensor) -> float:
    return float((logits.argmax(dim=1) != others.argmax(dim=1)).double().mean())


def _ways_back(model: Any, x: Tensor) -> dict[str, float]:
    block = model[0]
    ends = wm.solve(block.field, x, block.solver).final
    own, fine = (_solved_back(block.field, ends, solver) for solver in (block.solver, FINE))
    return {"lost": lost_share(x, own), "strayed": strayed_share(x, own), "strayed_finely": strayed_share(x, fine)}


def _solved_back(field: nn.Module, ends: Tensor, solver: wm.Solver) -> Tensor:
    try:
        return wm.solve(field, ends, solver, times=(1.0, 0.0)).final
    except SolverError:  # it blows up
        return torch.full_like(ends, torch.inf)


def lost_share(inputs: Tensor, found: Tensor) -> float:
    """The share of inputs [n, d] whose own point of `found` is nearer to another input."""
    nearest = torch.cdist(found.double(), inputs.double()).nan_to_num(torch.inf).argmin(dim=1)
    there = found.isfinite().all(dim=1) & (nearest == torch.arange(len(inputs), device=nearest.device))
    return float((~there).double().mean())


def strayed_share(inputs: Tensor, found: Tensor) -> float:
    """The share of inputs [n, d] whose own point of `found` is too far away."""
    return float((~((found - inputs).norm(dim=1) <= FAR)).double().mean())


def _noisy(model: nn.Module, x: Tensor, y: Tensor, spread: float) -> float:
    return sum(_accuracy(model(inputs), y) for inputs in with_noise(x, spread)) / DRAWS


def with_noise(x: Tensor, spread: float) -> Iterator[Tensor]:
    """Inputs with normal noise, drawn several times; the same on every device."""
    stream = torch.Generator().manual_seed(0)
    for _ in range(DRAWS):
        yield x + spread * torch.randn(x.shape, generator=stream).to(x)


def attacked(model: nn.Module, x: Tensor, y: Tensor, most: float) -> Tensor:
    """Inputs after projected gradient descent within `most` of each coordinate, from a random point there."""
    start = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)).to(x) * 2 - 1
    found = x + most * start
    for _ in range(ATTACK_STEPS):
        found.requires_grad_()
        (uphill,) = torch.autograd.grad(F.cross_entropy(model(found), y), found)
        found = (found.detach() + most / 4 * uphill.sign()).clamp(x - most, x + most)
    return found


def calibration_error(logits: Tensor, y: Tensor) -> float:
    """How far accuracy and confidence are apart, in the mean over bins of confidence: expected calibration error."""
    confidence, chosen = logits.double().softmax(dim=1).max(dim=1)
    right, place = (chosen == y).double(), (confidence * BINS).long().clamp(max=BINS - 1)
    gaps = [abs(float((right - confidence)[place == bin].sum())) for bin in range(BINS)]
    return sum(gaps) / len(y)


def _longer(model: Any, x: Tensor, y: Tensor, end: float) -> float:
    own = copy.deepcopy(model)
    own[0].times = (0.0, end)
    try:
        return _accuracy(own(x), y)
    except SolverError:
        return 0.0
