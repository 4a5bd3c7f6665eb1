"""Models that are trained together, and each of them alone to compare with."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from windermere.nn import ODEBlock, using
from windermere.paper.training import Ensemble, RunConfig
from windermere.paper.training.batches import Batches
from windermere.paper.training.checkpoint import make_optimizer
from windermere.solvers import Adaptive, FixedStep, Solver

from .small import fit_alone, some_spheres

SEEDS = (3, 0, 8)


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def steps(method: str, n: int) -> Solver:
    return FixedStep.of(method, steps=n)


def tolerance(method: str, value: float, **options: Any) -> Solver:
    return Adaptive(method, tolerance=value, **options)


def fit_together(ensemble: Ensemble, config: RunConfig, solvers: Sequence[Solver], data: tuple[Tensor, Tensor]) -> None:
    """The training loop by hand, with a solver for each member."""
    inputs, labels = data
    optimizer = make_optimizer(config.optimizer, ensemble.parameters(), config.lr)
    batches = Batches(len(labels), config.batch_size, config.seeds, "cpu")
    for iteration in range(config.iterations):
        chosen = batches.indices(iteration)
        optimizer.zero_grad()
        logits = ensemble(inputs[chosen], solvers)
        loss = F.cross_entropy(logits.transpose(1, 2), labels[chosen], reduction="none").mean(dim=1).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def assert_members_equal_models_alone(
    make: Callable[[int], nn.Module], config: RunConfig, solvers: Sequence[Solver], data: tuple[Tensor, Tensor]
) -> None:
    ensemble = Ensemble([make(seed) for seed in config.seeds])
    fit_together(ensemble, config, solvers, data)
    for s, (seed, solver) in enumerate(zip(config.seeds, solvers, strict=True)):
        alone = make(seed)
        with using(alone, solver):
            fit_alone(alone, config, *data, seed)
        for name, expected in alone.named_parameters():
            assert_close(ensemble.tensors[name][s].detach(), expected.detach())


def float64_spheres() -> tuple[Tensor, Tensor]:
    (inputs, labels), _ = some_spheres()
    return inputs.double(), labels


DIFFERING: list[list[Solver]] = [
    [steps("euler", n) for n in (2, 9, 5)],
    [FixedStep("rk4", step=h) for h in (0.4, 1.0, 0.3)],
    [tolerance("dopri54", value) for value in (1e-2, 1e-4, 1e-3)],
    [tolerance("fehlberg21", value) for value in (1e-1, 1e-3, 1e-2)],
    [tolerance("dopri54", value, control="sample") for value in (1e-1, 1e-3, 1e-2)],
]


DIFFERING_IDS = ["euler", "rk4", "dopri54", "fehlberg21", "by sample"]


class Swinging(nn.Module):
    """A field as a user writes it: smooth, and it depends on t, which is a number to it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width + 1, 8), nn.Linear(8, width)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        if t.ndim > 0:
            raise AssertionError(f"t is of shape {tuple(t.shape)}")
        time = t.expand(*z.shape[:-1], 1)
        hidden = torch.tanh(self.into(torch.cat([z, time], dim=-1)))
        return torch.as_tensor(self.out(hidden) * torch.cos(3 * t))


def a_model_of_many_layers(seed: int) -> nn.Module:
    """Upstream and downstream layers, two blocks, an activation that is used twice, a Sequential inside."""
    generator = torch.Generator().manual_seed(seed)
    tanh = nn.Tanh()
    blocks = [ODEBlock(Swinging(4), steps("euler", 1), times=times) for times in ((0.0, 1.0), (0.5, -0.25))]
    inner = nn.Sequential(OrderedDict(block=blocks[0], norm=nn.LayerNorm(4)))
    made = nn.Sequential(
        nn.Linear(2, 4), tanh, inner, nn.Linear(4, 4, bias=False), tanh, blocks[1], nn.Flatten(), nn.Linear(4, 2)
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
    return made
