"""What might be lost by being tied, measured on one model with its own solver: the way back, robustness, calibration,
another arithmetic, other batches, a longer time.

Shapes: n samples, d points, C classes; of images d stands for channels, height and width.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import windermere as wm
from windermere.errors import SolverError
from windermere.paper.studies.recipe_measures import audited, costs
from windermere.paper.studies.rows import MAIN, RunRow, Table, Tables, five_digits
from windermere.paper.studies.study import Finished
from windermere.paper.training import Labelled, RunConfig
from windermere.records import sparse

BINS = 15
ALONE = 200
"""Samples that are classified one by one."""
NOISES = ("noise_1", "noise_2", "noise_5")
ATTACKS = ("attack_05", "attack_10", "attack_20")


@dataclass(frozen=True, kw_only=True)
class Scales:
    """What is large and what is small on some data, and how much is tried there."""

    noise: tuple[float, float, float]
    """Standard deviations of noise on inputs."""
    draws: int
    """How often noise is drawn."""
    attacks: tuple[float, float, float]
    """The most by which projected gradient descent may change each coordinate."""
    attack_steps: int
    attacked: int | None
    """Samples that are attacked; None are all."""
    far: float
    """How far off an input may come back."""
    fine: wm.FixedStep


SPHERES = Scales(
    noise=(0.01, 0.02, 0.05),  # shells are 0.1 apart, and far is half of that
    draws=5,
    attacks=(0.005, 0.01, 0.02),
    attack_steps=20,
    attacked=None,
    far=0.05,
    fine=wm.FixedStep("rk4", step=1 / 256),
)
SCALES: Mapping[str, Scales] = {
    "sphere2": SPHERES,
    "mnist-patches": Scales(
        noise=(0.1, 0.2, 0.3),
        draws=2,
        attacks=(0.01, 0.02, 0.05),
        attack_steps=10,
        attacked=250,
        far=1.0,  # half the distance to the nearest other image is 1.1 in the median
        fine=wm.FixedStep("rk4", step=1 / 64),
    ),
}
"""By data set. On images less is tried, so that one CPU core does it."""


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
    """Inputs that come back too far away."""
    strayed_finely: float | None = None
    """The same with a fine solver on the way back."""
    noise_1: float | None = None
    """Accuracy with noise on inputs; names are of hundredths on Sphere2."""
    noise_2: float | None = None
    noise_5: float | None = None
    attack_05: float | None = None
    """Accuracy under attacks; names are of thousandths on Sphere2."""
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
            **measured(run.trained.member(s), run.test_set, SCALES[run.trained.config.data]),
        )
        for s, row in enumerate(rows)
    ]})  # fmt: skip


def untested_row(run: str, config: RunConfig, seed: int) -> TiedRow:
    return TiedRow(run=run, seed=seed, iterations=config.iterations, accuracy=None)


def measured(model: nn.Module, test_set: Labelled, scales: Scales = SPHERES) -> dict[str, Any]:
    """Every measure of one model, by the name of its field."""
    x, y = test_set
    with torch.no_grad():
        logits = model(x)
        values = {
            **_ways_back(model, x, scales),
            **dict(zip(NOISES, (_noisy(model, x, y, s, scales.draws) for s in scales.noise), strict=True)),
            "calibration_error": calibration_error(logits, y),
            "loss": float(F.cross_entropy(logits, y)),
            "bfloat16": _accuracy(copy.deepcopy(model).bfloat16()(x.bfloat16()), y),
            "float64_changes": _changes(logits, copy.deepcopy(model).double()(x.double())),
            "batch_changes": _changes(logits[:ALONE], torch.cat([model(one[None]) for one in x[:ALONE]])),
            **dict(zip(("longer_125", "longer_150"), (_longer(model, x, y, t) for t in (1.25, 1.5)), strict=True)),
        }
    some, their = x[: scales.attacked], y[: scales.attacked]
    tried = (attacked(model, some, their, most, scales.attack_steps) for most in scales.attacks)
    values |= dict(zip(ATTACKS, (_accuracy(model(found).detach(), their) for found in tried), strict=True))
    return {name: five_digits(values[name]) for name in MEASURES}


def _accuracy(logits: Tensor, y: Tensor) -> float:
    return float((logits.argmax(dim=1) == y).double().mean())


def _changes(logits: Tensor, others: Tensor) -> float:
    return float((logits.argmax(dim=1) != others.argmax(dim=1)).double().mean())


def _ways_back(model: Any, x: Tensor, scales: Scales) -> dict[str, float]:
    block = model[0]
    ends = wm.solve(block.field, x, block.solver).final
    own, fine = (_solved_back(block.field, ends, solver) for solver in (block.solver, scales.fine))
    strayed, finely = (strayed_share(x, found, scales.far) for found in (own, fine))
    return {"lost": lost_share(x, own), "strayed": strayed, "strayed_finely": finely}


def _solved_back(field: nn.Module, ends: Tensor, solver: wm.Solver) -> Tensor:
    try:
        return wm.solve(field, ends, solver, times=(1.0, 0.0)).final
    except SolverError:  # it blows up
        return torch.full_like(ends, torch.inf)


def lost_share(inputs: Tensor, found: Tensor) -> float:
    """The share of inputs [n, d] whose own point of `found` is nearer to another input."""
    ends, starts = found.double().flatten(1), inputs.double().flatten(1)
    nearest = torch.cdist(ends, starts).nan_to_num(torch.inf).argmin(dim=1)
    there = ends.isfinite().all(dim=1) & (nearest == torch.arange(len(inputs), device=nearest.device))
    return float((~there).double().mean())


def strayed_share(inputs: Tensor, found: Tensor, far: float) -> float:
    """The share of inputs [n, d] whose own point of `found` is too far away."""
    return float((~((found - inputs).flatten(1).norm(dim=1) <= far)).double().mean())


def _noisy(model: nn.Module, x: Tensor, y: Tensor, spread: float, draws: int) -> float:
    return sum(_accuracy(model(inputs), y) for inputs in with_noise(x, spread, draws)) / draws


def with_noise(x: Tensor, spread: float, draws: int) -> Iterator[Tensor]:
    """Inputs with normal noise, drawn several times; the same on every device."""
    stream = torch.Generator().manual_seed(0)
    for _ in range(draws):
        yield x + spread * torch.randn(x.shape, generator=stream).to(x)


def attacked(model: nn.Module, x: Tensor, y: Tensor, most: float, steps: int) -> Tensor:
    """Inputs after projected gradient descent within `most` of each coordinate, from a random point there."""
    start = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)).to(x) * 2 - 1
    found = x + most * start
    for _ in range(steps):
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
