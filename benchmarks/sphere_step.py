"""A Sphere2 training step (Euler, 64 steps, batch 128, Adam) against torchdiffeq on the same Conv1d network."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchdiffeq import odeint

import windermere as wm
from benchmarks.measuring import Bar, keep, show, side_by_side
from windermere.nn import ode_blocks
from windermere.paper import data
from windermere.paper.architectures import architecture, initialise
from windermere.paper.training import Ensemble
from windermere.paper.training.checkpoint import make_optimizer

STEPS, BATCH = 64, 128
SOLVER = wm.FixedStep.of("euler", steps=STEPS)


class ConvField(nn.Module):
    """The paper's field as anyone would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.mix, self.lower = nn.Conv1d(1, 32, 1), nn.Conv1d(32, 32, 3, padding=1), nn.Conv1d(32, 1, 1)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.lower(F.relu(self.mix(F.relu(self.lift(z)))))


class TorchdiffeqModel(nn.Module):
    """The same model with torchdiffeq's solver."""

    def __init__(self, source: nn.Sequential) -> None:
        super().__init__()
        self.field, self.head = ConvField(), nn.Linear(2, 2)
        block, *_ = ode_blocks(source)
        self.field.load_state_dict(block.field.state_dict())
        self.head.load_state_dict(source[2].state_dict())

    def forward(self, x: Tensor) -> Any:
        times = torch.tensor([0.0, 1.0])
        end = odeint(self.field, x.unsqueeze(1), times, method="euler", options={"step_size": 1 / STEPS})[-1]
        return self.head(end.flatten(1))


def torchdiffeq_step(seed: int, x: Tensor, y: Tensor) -> Callable[[], float]:
    model = TorchdiffeqModel(_model(seed))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def windermere_step(seeds: range, x: Tensor, y: Tensor) -> Callable[[], list[float]]:
    """As the training loop does it; one batch for all members, so that losses compare."""
    ensemble = Ensemble([_model(seed) for seed in seeds])
    optimizer = make_optimizer("adam", ensemble.parameters(), 1e-4)
    xs, ys = x.expand(len(seeds), *x.shape), y.expand(len(seeds), *y.shape)

    def step() -> list[float]:
        optimizer.zero_grad()
        logits = ensemble(xs, (SOLVER,) * len(seeds))
        losses = F.cross_entropy(logits.transpose(1, 2), ys, reduction="none").mean(dim=1)
        losses.sum().backward()
        optimizer.step()
        return losses.tolist()

    return step


def _model(seed: int) -> nn.Sequential:
    model = architecture("sphere2", SOLVER)
    initialise(model, seed)
    return model


def run(*, rounds: int = 15) -> list[Bar]:
    split = data.load("sphere2").train
    x, y = split.inputs[:BATCH], split.labels[:BATCH]
    reference = [torchdiffeq_step(seed, x, y)() for seed in range(5)]
    ours = windermere_step(range(5), x, y)()
    apart = max(abs(a / b - 1) for a, b in zip(ours, reference, strict=True))
    seconds = side_by_side(
        {
            "torchdiffeq, one model": torchdiffeq_step(0, x, y),
            "windermere, one model": windermere_step(range(1), x, y),
            "windermere, five members": windermere_step(range(5), x, y),
        },
        rounds=rounds,
    )
    peer, one, five = seconds.values()
    bars = [
        Bar(name="one model, times torchdiffeq", measured=peer / one, limit=4, at_least=True, unit="x"),
        Bar(
            name="five members, per seed, times torchdiffeq",
            measured=5 * peer / five,
            limit=10,
            at_least=True,
            unit="x",
        ),
        Bar(name="largest relative difference of losses", measured=apart, limit=1e-5, at_least=False),
    ]
    milliseconds = {name: f"{1000 * value:.2f} ms" for name, value in seconds.items()}
    show(f"Sphere2 training step, Euler {STEPS} steps, batch {BATCH}, {torch.get_num_threads()} threads", milliseconds)
    keep("sphere_step", {"seconds": seconds, "bars": {bar.name: bar.measured for bar in bars}})
    return bars
