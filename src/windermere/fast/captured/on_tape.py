"""A captured solve on autograd's tape."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.errors import UsageError
from windermere.fast.captured.reads import Reads
from windermere.fast.captured.steps import Motion
from windermere.fast.captured.walks import Station, Taken
from windermere.solvers.field import Rate, packed_rate
from windermere.solvers.problem import Problem, Walked
from windermere.solvers.runge_kutta import combine, stages


class OnTape(torch.autograd.Function):
    """A solve that has been done; its way back replays the steps, unless it is to be differentiated itself."""

    @staticmethod
    def forward(ctx: Any, station: Station, solved: "Solved", z0: Tensor, *parameters: Tensor) -> Tensor:
        ctx.station, ctx.rate, ctx.reads = station, solved.rate, solved.reads
        ctx.stops, ctx.inner, ctx.parameters = solved.taken.stops, solved.taken.inner, parameters
        ctx.save_for_backward(solved.taken.states, solved.taken.table, z0)
        return solved.states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        states, table, z0 = ctx.saved_tensors
        station, taken = ctx.station, Taken(states, table, ctx.stops, ctx.inner)
        ctx.reads.check()
        if torch.is_grad_enabled():
            if not ctx.reads.are_current():
                raise UsageError(
                    "the gradient of this solve cannot be differentiated again (create_graph=True): the field is no "
                    "longer that of the solve"
                )
            return None, None, *_again(station.motion, ctx.rate, taken, grads[0], z0, ctx.parameters)
        on_z, on_parameters = station.pull_back(taken, ctx.reads, grads[0])
        needed = ctx.needs_input_grad[2:]
        return None, None, *(g if need else None for g, need in zip((on_z, *on_parameters), needed, strict=True))


@dataclass(frozen=True, eq=False)
class Solved:
    """A solve that has been done."""

    rate: Rate
    reads: Reads
    states: Tensor
    taken: Taken


def _again(
    motion: Motion, rate: Rate, taken: Taken, grad: Tensor, z0: Tensor, parameters: Sequence[Tensor]
) -> list[Tensor | None]:
    """The same gradient by way of autograd: the steps are taken once more, on its tape."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        z, found, tableau = z0.view_as(z0), [], motion.tableau
        start = z
        inner: list[Tensor] = []
        for n in range(len(taken.table)):
            *times, h = taken.table[n].unbind(0)
            rates = stages(tableau, rate, times, z, h)
            inner += _within(taken, n, z, rates)
            z = combine(z, h, tableau.b, rates)
            found += [z] * taken.stops.count(n + 1)
        end = torch.stack([*inner, *found])
        wanted = [x for x in (start, *parameters) if x.requires_grad]
        given = iter(torch.autograd.grad(end, wanted, grad, create_graph=again, allow_unused=True))
    return [next(given) if x.requires_grad else None for x in (start, *parameters)]


def _within(taken: Taken, n: int, z: Tensor, rates: Sequence[Tensor]) -> list[Tensor]:
    """The interpolated states of one step."""
    if taken.inner is None:
        return []
    own = (taken.inner.steps == n).nonzero().flatten().tolist()
    return [z + sum(w * k for w, k in zip(taken.inner.weights[j], rates, strict=False)) for j in own]


def solve_captured(station: Station, problem: Problem, reads: Reads, parameters: Sequence[Tensor]) -> Walked | None:
    """A solve by this station's steps, with its gradient by these parameters; None where there is trouble."""
    if station.fixed is not None:
        states, taken = station.walk_grid(problem, reads)
        walked = Walked.over_grid(problem.tableau.propagating, problem.grid.taken, [])
    else:
        adapted = station.adapt(problem, reads)
        if adapted is None:
            return None
        states, taken, costs = adapted
        walked = replace(Walked.adapted(problem, [], costs), recomputed=_recomputed(problem, taken, costs[1]))
    if station.graded:
        rate = packed_rate(problem.layout, problem.field)
        done = station, Solved(rate, reads, states, taken), problem.z0
        states = cast(Tensor, OnTape.apply(*done, *parameters))  # type: ignore[no-untyped-call]
    return replace(walked, states=[problem.z0, *states.unbind(0)])


def _recomputed(problem: Problem, taken: Taken, accepted: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Evaluations that checkpointing repeats, as step by step: all of a try that any group accepted."""
    if problem.gradient != "checkpoint" or not problem.ledger.counts or taken.nodes is None:
        return None
    tableau, nodes = problem.tableau, taken.nodes.cpu().numpy()
    tried = (nodes[:, 0] != nodes[:, 1]).sum(axis=0)
    first = 1 if tableau.fsal else accepted.reshape(problem.layout.groups)
    return np.asarray(tried * (tableau.stages - 1) + first)
