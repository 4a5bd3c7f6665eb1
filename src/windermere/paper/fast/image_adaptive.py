"""An adaptive solve of the image networks' field on the GPU, with the kernels of fixed steps.

The host chooses the steps, as for any other field (solvers/adaptive.py), and waits for each error estimate; the way
back goes over the accepted steps as over a grid. Shapes as in image_fused.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from windermere.fast.cpu.native_call import is_graded
from windermere.paper.fast.fused import Weights
from windermere.paper.fast.image_evaluation import Evaluation, Launch, Second
from windermere.paper.fast.image_fused import DEFAULT, check_size, pulled_back
from windermere.solvers import Adaptive, Problem, Tableau, Walked
from windermere.solvers.adaptive import walk_adaptively
from windermere.solvers.gradients import differentiable_once
from windermere.solvers.layout import lay_out

Evaluated: TypeAlias = Sequence[Tensor]
"""An input, and what is kept of the second hidden layer there: nothing, or a Second."""


def image_adapt(problem: Problem, weights: Weights, launch: Launch = DEFAULT) -> Walked:
    """A solve whose steps are chosen as adaptive.py does, by each member for itself. For a model alone the member axis
    is left out."""
    z = problem.z0
    if z.ndim == 4:
        return _adapt_alone(problem, problem.adaptive[0], z, weights, launch)
    solved = [
        _adapt_alone(problem, solver, z[s], [w[s] for w in weights], launch)
        for s, solver in enumerate(problem.adaptive)
    ]
    costs = np.stack([[w.evaluations, w.accepted, w.rejected] for w in solved], axis=1)
    return Walked.adapted(problem, [z, torch.stack([w.states[-1] for w in solved])], list(costs))


def _adapt_alone(problem: Problem, solver: Adaptive, z: Tensor, weights: Weights, launch: Launch) -> Walked:
    check_size(z, weights)
    tableau, keep, start = problem.tableau, is_graded(z, weights), z.detach().contiguous()
    with torch.no_grad(), torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
        recorder = _Recorder(tableau, Evaluation(launch, start, weights), keep)
        layout, settle = lay_out(start, members=None, samples=False), recorder.settle if keep else None
        own = Problem(problem.field, recorder.rate, None, start, layout, (solver,), problem.times, settle=settle)
        walked = walk_adaptively(own)
    end = walked.states[-1]
    if keep:
        end = _AdaptedWalk.apply(tableau, launch, recorder, [end], z, *weights)  # type: ignore[no-untyped-call]
    return replace(walked, states=[z, end])


class _AdaptedWalk(torch.autograd.Function):
    """A solve that has been done; the backward pass is the gradient of its accepted steps, as precise as a grid's."""

    @staticmethod
    def forward(
        ctx: Any,
        tableau: Tableau,
        launch: Launch,
        recorder: "_Recorder",
        end: Sequence[Tensor],
        z: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        ctx.tableau, ctx.launch, ctx.sizes = tableau, launch, recorder.sizes
        ctx.each = len(recorder.accepted[0])
        # The start itself is one of the inputs: changed in between, it is an error, as changed weights are.
        ctx.save_for_backward(z, *weights, *(tensor for kept in recorder.accepted for tensor in kept))
        return end[0]

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (_, *saved), on_end = ctx.saved_tensors, grads[0]
        weights, kept = saved[:6], saved[6:]
        evaluations = [kept[i : i + ctx.each] for i in range(0, len(kept), ctx.each)]
        accepted = _Accepted(evaluations, ctx.tableau.propagating)
        sizes = on_end.new_tensor(ctx.sizes)
        return *(None,) * 4, *pulled_back(ctx.tableau, ctx.launch, sizes, on_end, weights, accepted)


@dataclass(frozen=True)
class _Accepted:
    """What the way back finds of each evaluation of the accepted steps."""

    evaluations: Sequence[Evaluated]
    stages: int

    def input(self, n: int, i: int) -> Tensor:
        return self.evaluations[n * self.stages + i][0]

    def second(self, n: int, i: int) -> Second | None:
        _, *hidden = self.evaluations[n * self.stages + i]
        return (hidden[0], hidden[1], hidden[2]) if hidden else None


class _Recorder:
    """Evaluates the field for an adaptive solve, and keeps what belongs to the steps that are accepted."""

    def __init__(self, tableau: Tableau, walk: Evaluation, keep: bool) -> None:
        self.sizes, self.accepted = list[float](), list[Evaluated]()
        self._tableau, self._walk, self._patches = tableau, walk, walk.new_patches()
        self._keep, self._keep_hidden = keep, keep and walk.source != "recomputed"
        self._latest = list[Evaluated]()

    def rate(self, _: Tensor, x: Tensor) -> Tensor:
        rate, hidden = torch.empty_like(x), self._walk.new_hidden(1) if self._keep_hidden else None
        second = None if hidden is None else (hidden[0][0], hidden[1][0], hidden[2][0])
        self._walk.combine(x, rate, rate, 0, (), rate, self._patches)  # x as patches
        self._walk.forward(self._patches, rate, second)
        if self._keep:
            self._latest.append((x, *(second or ())))
        return rate

    def settle(self, h: float | Tensor, accepted: Tensor | None) -> None:
        """The trial's first stage was evaluated first (which at the start a probe followed), its others last."""
        tableau, first = self._tableau, self._latest[0]
        trial = self._latest[1 - tableau.stages :]
        self._latest = [first]
        if accepted is None or bool(accepted):
            self.sizes.append(float(h))
            self.accepted += [first, *trial][: tableau.propagating]
            self._latest = trial[-1:] if tableau.fsal else []
