"""The adaptive kernels on a GPU: `PYTHONPATH=src python3 -m benchmarks.gpu_adaptive_check OUT.json`, under a minute.

Against the host-driven walk: costs, ends and gradients, and the time of a training step. Whatever fails is written
down, and the rest goes on.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu_kernel import BATCH, milliseconds, noted, short
from windermere.paper.architectures import architecture, initialise, walk_of
from windermere.paper.fast import fused_adaptive, spheres
from windermere.paper.fast.fused_adaptive import Launch
from windermere.paper.stacked import StackedField
from windermere.paper.training import Ensemble
from windermere.solvers import Adaptive, solve
from windermere.solvers.grid import Grid

SOLVERS = DOPRI54, _ = Adaptive("dopri54", tolerance=1e-4), Adaptive("fehlberg21", tolerance=1e-3)
LAUNCHES = {
    "4 warps there": Launch(rows_of_a_warp=32),
    "8 back": Launch(warps_back=8),
    "tile 32 back": Launch(tile_back=32),
}


def apart(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, wanted, strict=True))


class Problem:
    """A batch of the spheres' size, and an ensemble a little way into training, so that biases are not zero."""

    def __init__(self, solver: Adaptive, members: int, batch: int = BATCH, points: int = 2) -> None:
        self.solvers, generator = (solver,) * members, torch.Generator().manual_seed(3)
        models = [initialise(architecture(f"sphere{points}", solver), seed).cuda() for seed in range(members)]
        self.ensemble = Ensemble(models)
        self.x = (torch.randn(members, batch, points, generator=generator) * 0.3).cuda()
        self.y = (self.x.norm(dim=-1) > 0.3).long()
        with torch.no_grad():
            for tensor in self.ensemble.parameters():
                tensor.add_(torch.randn(tensor.shape, generator=generator).cuda(), alpha=0.05)

    def step(self) -> list[Tensor]:
        """Forward and back, as the training loop does it."""
        parameters = self.ensemble.parameters()
        loss = F.cross_entropy(self.ensemble(self.x, self.solvers).transpose(1, 2), self.y, reduction="none")
        return list(torch.autograd.grad(loss.mean(dim=1).sum(), parameters))

    def solved(self) -> tuple[dict[str, list[int]], Tensor]:
        field, z = self.ensemble.first_solve(self.x)
        solution = solve(field, z, self.solvers)
        return {name: n.tolist() for name, n in vars(solution.stats).items()}, torch.as_tensor(solution.final).detach()


def compared(problem: Problem) -> dict[str, Any]:
    """Over steps that differ a little, units may be on for the one and off for the other: see `exact` for gradients."""
    (costs, end), gradients, again = problem.solved(), problem.step(), problem.step()
    with patch.object(spheres, "can_adapt", lambda *_: False):
        (their_costs, their_end), theirs = problem.solved(), problem.step()
    found = {"same costs": costs == their_costs, "costs": costs, "by host": their_costs}
    found |= {"end": apart([end], [their_end]), "gradients": apart(gradients, theirs), **exact(problem)}
    return found | {"same bits again": all(torch.equal(a, b) for a, b in zip(gradients, again, strict=True))}


def exact(problem: Problem) -> dict[str, float]:
    """Against float64 over the very same steps."""
    field, z = problem.ensemble.first_solve(problem.x)
    start, weights = z.clone().requires_grad_(), field.tensors
    end = torch.as_tensor(solve(field, start, problem.solvers).final)
    gradients = torch.autograd.grad(end.square().sum(), [start, *weights.values()])
    made: Any = end.grad_fn
    sizes, counts = (x.double().cpu().numpy() for x in (made.solve.sizes, made.solve.found[0]))
    sizes = np.where(np.arange(sizes.shape[1]) < counts[:, None], sizes, 0.0)
    nodes = np.pad(sizes.cumsum(axis=1), ((0, 0), (1, 0)))
    grid = Grid(nodes if len(nodes) > 1 else nodes[0], (0, sizes.shape[1]))
    start, *doubles = (x.detach().double().requires_grad_() for x in (start, *weights.values()))
    walk = walk_of(StackedField(field.field, dict(zip(weights, doubles, strict=True))), "backprop")
    assert walk is not None
    wanted = walk(problem.solvers[0].tableau, grid, start)
    theirs = torch.autograd.grad(wanted.square().sum(), [start, *doubles])
    return {"exact end": apart([end.detach()], [wanted.detach()]), "exact gradients": apart(gradients, theirs)}


def timed(problem: Problem) -> dict[str, float]:
    """The first step compiles."""
    begun, _ = time.perf_counter(), [x.cpu() for x in problem.step()]
    found = {"first step, s": time.perf_counter() - begun, "kernels": milliseconds(problem.step, 5, 3)}
    with patch.object(spheres, "can_adapt", lambda *_: False):
        return found | {"by host": milliseconds(problem.step, 2, 3)}


def with_launch(problem: Problem, launch: Launch) -> float:
    with patch.object(spheres, "adapt_on_device", partial(fused_adaptive.adapt_on_device, launch=launch)):
        return milliseconds(problem.step, 5, 3)


def main(out: Path) -> None:
    result: dict[str, Any] = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    out.parent.mkdir(parents=True, exist_ok=True)

    def keep(name: str, work: Callable[..., Any], *args: Any) -> None:
        result[name] = noted(work, *args)
        out.write_text(json.dumps(result, indent=1))
        print(f"{name:<52} {short(result[name])}", flush=True)

    for solver in SOLVERS:
        for members in (1, 5):
            problem = Problem(solver, members)
            keep(f"{solver}, {members} members: ms of a step", timed, problem)
            keep(f"{solver}, {members} members: against the host", compared, problem)
    for name, launch in LAUNCHES.items():
        keep(f"{DOPRI54}, 1 member, {name}: ms", with_launch, Problem(DOPRI54, 1), launch)
    for batch, points in ((100, 2), (256, 2), (128, 3), (128, 4)):
        keep(f"{batch} samples, {points} points", compared, Problem(DOPRI54, 2, batch, points))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
