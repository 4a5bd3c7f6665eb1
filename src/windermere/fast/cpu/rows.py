"""Fields of all kinds whose operations are row-wise (trace.py), solved in C on a CPU: native_rows.h.

A field is traced once and then found again as long as nothing changes that it depends on (traced.py). Whatever is not
understood goes through PyTorch step by step.
"""

import logging
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from windermere._torch_private import is_in_a_mode, pulled_back
from windermere.fast.cpu.native import InC, Native, way_back
from windermere.fast.cpu.native_call import C_TYPES, Again, Weights
from windermere.fast.cpu.native_plan import Steps, network_of
from windermere.fast.program import Program, evaluate
from windermere.fast.trace import DeclinedError
from windermere.fast.traced import Traced, traced
from windermere.solvers import FastAdjoint, Problem, Tableau
from windermere.solvers.field import Rate
from windermere.solvers.paths import Adjoined
from windermere.solvers.runge_kutta import combine, stage_nodes, stages
from windermere.solvers.torch_modes import is_looked_through


class RowsInC(InC):
    """Solves in C of fields whose program is known."""

    def takes(self, problem: Problem) -> bool:
        """States of rows, and not of an ensemble; with fixed steps, times that are landed on."""
        z = problem.z0
        plain = z.ndim == 2 and z.is_cpu and z.dtype in C_TYPES and not problem.layout.groups
        asked = not problem.record and (bool(problem.adaptive) or not problem.interpolate) and len(problem.solvers) == 1
        return plain and asked and not is_looked_through() and not is_in_a_mode()

    def native_of(self, problem: Problem) -> Native | None:
        found = self.traced(problem)
        return None if found is None else _native(found, problem)

    def traced(self, problem: Problem) -> Traced | None:
        try:
            return traced(problem)
        except DeclinedError as reason:
            say_once(f"{type(problem.field).__name__} is solved step by step: {reason}")
            return None

    def adjoint(self, problem: Problem) -> FastAdjoint | None:
        """The continuous adjoint of a module that depends on its own parameters alone, as it has to without this."""
        if not self.takes(problem):
            return None
        found = self.traced(problem)
        if found is None or found.unread is None:
            return None
        way = way_back(problem, _native(found, problem))
        return None if way is None else to_roots(way, found, found.unread, problem.field)


@lru_cache(maxsize=256)
def say_once(what: str) -> None:
    """Tell it once."""
    logging.getLogger("windermere").debug(what)


def _native(found: Traced, problem: Problem) -> Native:
    program, weights = found.program, found.externals()
    graded = frozenset([k for k, w in enumerate(weights) if w.requires_grad])
    network = network_of("rows", program.points, program=program, graded=graded)
    return Native(network, weights, problem.field, lambda steps: replay(program, steps), found.is_alike)


def to_roots(way: FastAdjoint, found: Traced, unread: Sequence[Tensor], rate: Rate) -> FastAdjoint:
    """The same with gradients of what the external tensors are made of; those of what is not read are zero."""

    def adjoin(times: tuple[float, float], z: Tensor, a: Tensor) -> Adjoined | None:
        done = way.adjoin(times, z, a)
        if done is None:
            return None
        return done._replace(gradient=[*_pulled_back(found, done.gradient), *map(torch.zeros_like, unread)])

    return FastAdjoint(adjoin, (*found.roots, *unread), rate)


def _pulled_back(found: Traced, gradients: Sequence[Tensor]) -> list[Tensor]:
    if not found.recipe.steps:
        by_root = dict(zip(found.recipe.wanted, gradients, strict=True))
        return [by_root[k] if k in by_root else torch.zeros_like(x) for k, x in enumerate(found.roots)]
    with torch.enable_grad():
        roots = [x.detach().requires_grad_(x.requires_grad) for x in found.roots]  # a mask may be one of them
        made = [(x, g.view_as(x)) for x, g in zip(found.recipe.made(roots), gradients, strict=True) if x.requires_grad]
    wanted = [x for x in roots if x.requires_grad] if made else []
    on = iter(pulled_back([x for x, _ in made], wanted, [g for _, g in made]) if wanted else ())
    own = [next(on, None) if x.requires_grad else None for x in roots]
    # Copies: others are added to them in place, and those of a sum's two terms are one and the same.
    return [torch.zeros_like(x) if g is None else g.clone() for x, g in zip(roots, own, strict=True)]


def replay(program: Program, steps: Steps) -> Again:
    """The same solve by PyTorch's operations."""

    def again(z: Tensor, weights: Weights) -> Tensor:
        def rate(t: Tensor, z: Tensor) -> Tensor:
            return evaluate(program, weights, t, z)

        tableau, ends = steps.tableau, []
        count = tableau.stages if steps.inner_times is not None else tableau.propagating
        for n, (start, end) in enumerate(pairwise(steps.nodes)):
            times = [z.new_tensor(t) for t in stage_nodes(tableau, start, end)[:count]]
            rates = stages(tableau, rate, times, z, float(end - start))
            inner = np.flatnonzero(steps.inner_steps == (n if steps.inner_times is not None else n + 1))
            if steps.inner_times is not None:
                ends += [_within(tableau, start, end, steps.inner_times[k], z, rates) for k in inner]
            z = combine(z, float(end - start), tableau.b, rates)
            if steps.inner_times is None:
                ends += [z for _ in inner]
        return torch.stack([*ends, z]) if len(steps.inner_steps) else z

    return again


def _within(tableau: Tableau, start: float, end: float, time: float, z: Tensor, rates: Sequence[Tensor]) -> Tensor:
    """The state at a time within a step."""
    powers = ((time - start) / (end - start)) ** np.arange(1, len(tableau.dense[0]) + 1)
    return combine(z, float(end - start), (np.asarray(tableau.dense) @ powers).tolist(), rates)
