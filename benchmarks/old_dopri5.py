"""dopri5 as torchdiffeq had it until August 2020 (version 0.0.1), written out anew for several seeds at once.

It differs from ours in three things. It does not shorten its last step, but goes past the end and interpolates. Its
first step may be longer than the whole time. And its steps are part of the gradient, by way of the error estimates that
chose them. Tableau, norm, choice of steps and interpolant are the same.

    python -m benchmarks.old_dopri5 FOLDER      # compares it with that version, which was unpacked into the folder

Shapes: S seeds, B samples, d = 2 coordinates, K = 7 stages.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY
from windermere.solvers.tableaus import tableau

Field = Callable[[Tensor], Tensor]
DOPRI = tableau("dopri54")
ROWS = [torch.tensor(row, dtype=torch.float64) for row in DOPRI.a]
APART = [own - other for own, other in zip(DOPRI.b, DOPRI.b_embedded or (), strict=True)]
ERROR = torch.tensor(APART, dtype=torch.float64)
DENSE = torch.tensor(DOPRI.dense, dtype=torch.float64)
"""[K, 4]: each stage's weight within a step, as coefficients of its powers."""


def old_dopri5(tolerance: float, *, through_steps: bool = True) -> Callable[[Field, Tensor], Tensor]:
    """A whole solve of states [S, B, d] over a time of 1, each seed with steps of its own. Its gradient goes through
    the steps, as theirs did, unless that is turned off."""

    def solve(field: Field, z: Tensor) -> Tensor:
        k, end = field(z), z
        t, step = torch.zeros(len(z), dtype=torch.float64), _first_step(field, z, k, tolerance)
        while (active := t < 1).any():
            step = step if through_steps else step.detach()
            h = step.to(z.dtype)[:, None, None]
            stages = _stages(field, z, k, h)
            stepped = z + h * _weighted(ROWS[-1], stages)
            scale = tolerance * (1 + torch.maximum(z.abs(), stepped.abs()))
            square = (h * _weighted(ERROR, stages) / scale).square().mean(dim=(1, 2))
            accept = active & (square <= 1)
            reached = accept & (t + step >= 1)
            place = ((1 - t) / step).to(z.dtype)[:, None, None]
            end = _where(reached, z + h * _within(place, stages), end)
            z, k = _where(accept, stepped, z), _where(accept, stages[-1], k)
            t, step = torch.where(accept, t + step, t), torch.where(active, step / _shrinking(square), step)
        return end

    return solve


def _where(flags: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(flags[:, None, None], new, old)


def _stages(field: Field, z: Tensor, k: Tensor, h: Tensor) -> list[Tensor]:
    stages = [k]
    for row in ROWS[1:]:
        stages.append(field(z + h * _weighted(row, stages)))
    return stages


def _weighted(weights: Tensor, stages: Sequence[Tensor]) -> Tensor:
    states = torch.stack(list(stages[: len(weights)]))
    return torch.tensordot(weights[: len(stages)].to(states), states, dims=1)


def _within(place: Tensor, stages: Sequence[Tensor]) -> Tensor:
    """How far the field has taken a state [S, B, d] at a place [S, 1, 1] of its step, in units of the step."""
    powers = torch.stack([place ** (n + 1) for n in range(DENSE.shape[1])])
    weights = torch.einsum("kp,psbd->ksbd", DENSE.to(powers), powers)
    return (weights * torch.stack(list(stages))).sum(dim=0)


def _shrinking(square: Tensor) -> Tensor:
    """What a step is divided by, from the mean square of its error ratio, in double precision."""
    ratio = square.sqrt().double()
    most = torch.where(square < 1, 1.0, 1 / MOST_SHRINKING)
    return torch.minimum(ratio ** (1 / DOPRI.order) / SAFETY, most).clamp(min=1 / MOST_GROWTH)


def _first_step(field: Field, z: Tensor, k: Tensor, tolerance: float) -> Tensor:
    """Hairer's, in units of the tolerance; nothing keeps it from being longer than the time."""

    def norm(values: Tensor) -> Tensor:
        return values.square().mean(dim=(1, 2)).sqrt()

    scale = tolerance * (1 + z.abs())
    d0, d1 = norm(z / scale), norm(k / scale)
    h0 = 0.01 * d0 / d1
    d2 = norm((field(z + h0[:, None, None] * k) - k) / scale) / h0
    h1 = (0.01 / torch.maximum(d1, d2)) ** (1 / DOPRI.order)
    return torch.minimum(100 * h0, h1).double()


def compare(folder: Path) -> dict[str, float]:
    """How far the two are apart, relative to the largest number: states, and gradients of weights through the steps."""
    sys.path.insert(0, str(folder))
    theirs = importlib.import_module("torchdiffeq")
    stream = torch.Generator().manual_seed(0)
    first, last = (torch.randn(64, 2, generator=stream, requires_grad=True) for _ in range(2))
    z, along = torch.randn(100, 2, generator=stream), torch.randn(100, 2, generator=stream)
    found = dict[str, float]()
    for tolerance in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):

        def field(state: Tensor) -> Tensor:
            return torch.relu(state @ first.T) @ last * 0.3

        ends = [old_dopri5(tolerance)(field, z[None])[0]]
        times = torch.tensor([0.0, 1.0])
        ends.append(theirs.odeint(lambda _, s: field(s), z, times, rtol=tolerance, atol=tolerance, method="dopri5")[-1])
        gradients = [torch.autograd.grad((end * along).sum(), first)[0] for end in ends]
        for name, (ours, other) in (("states", ends), ("gradients", gradients)):
            found[f"{name} at {tolerance:g}"] = ((ours - other).abs().max() / other.abs().max()).item()
    return found


if __name__ == "__main__":
    for name, apart in compare(Path(sys.argv[1])).items():
        print(f"{name}: {apart:.2g}")
