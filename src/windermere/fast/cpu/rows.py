"""Fields of all kinds whose operations are row-wise (trace.py), solved in C on a CPU: native_rows.h.

A field is traced once and then found again as long as nothing changes that it depends on (traced.py). Whatever is not
understood goes through PyTorch step by step.
"""

import logging
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from windermere._torch_private import is_in_a_mode, pulled_back
from windermere.fast.cpu.native import InC, Native, way_back
from windermere.fast.cpu.native_call import C_TYPES, Again, Weights
from windermere.fast.cpu.native_plan import Steps, network_of
from windermere.fast.cpu.native_samples import SampleChoice
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

    own_times = True

    def takes(self, problem: Problem) -> bool:
        """States of rows, and not of an ensemble; with fixed steps, times that are landed on."""
        z = problem.z0
        plain = z.ndim == 2 and z.is_cpu and z.dtype in C_TYPES and not problem.layout.ensemble
        asked = not problem.record and (bool(problem.adaptive) or not problem.interpolate) and len(problem.solvers) == 1
        grouped = bool(problem.adaptive) and problem.gradient == "backprop"  # samples that choose their steps
        known = not problem.layout.groups or grouped
        return plain and asked and known and not is_looked_through() and not is_in_a_mode()

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
        if not self.takes(problem) or problem.layout.groups:
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
    alone, each = partial(replay, program), partial(replay_by_sample, program)
    return Native(network, weights, problem.field, alone, each, found.is_alike)


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


def replay_by_sample(program: Program, problem: Problem, choice: SampleChoice) -> Again:
    """The same where each sample has steps of its own: tries that it did not accept have size 0."""
    tableau, interpolate, layout = problem.tableau, problem.interpolate, problem.layout

    def again(z: Tensor, weights: Weights) -> Tensor:
        def rate(t: Tensor, z: Tensor) -> Tensor:
            return evaluate(program, weights, t, z)

        count, states, rates = tableau.stages if interpolate else tableau.propagating, [z], []
        for begin, end, size in zip(*choice.kept, strict=True):
            times = layout.columns(stage_nodes(tableau, begin, end)[:count], z).unbind(0)
            h = layout.columns(size, z)
            rates.append(stages(tableau, rate, times, states[-1], h))
            states.append(combine(states[-1], h, tableau.b, rates[-1]))
        inner = [_of_samples(states, rates, k, problem, choice) for k in range(choice.inner)]
        return torch.stack([*inner, states[-1]]) if inner else states[-1]

    return again


def _of_samples(
    states: Sequence[Tensor], rates: Sequence[Sequence[Tensor]], k: int, problem: Problem, choice: SampleChoice
) -> Tensor:
    """The samples' states at time k of those between: after so many tries, or within the next one."""
    own, z, dense = np.arange(len(states[0])), states[0], np.asarray(problem.tableau.dense)
    before = choice.by_samples(choice.before)[k]
    place = np.where(before < 0, len(rates), before)
    state = torch.stack(list(states))[torch.as_tensor(place), torch.as_tensor(own)]
    if not problem.interpolate or not rates:
        return state
    within = np.minimum(place, len(rates) - 1)
    begins, ends, _ = choice.kept
    begin, span = begins[within, own], (ends - begins)[within, own]
    part = np.where(before < 0, 0.0, (choice.asked[k] - begin) / np.where(span == 0, 1.0, span))
    by_stage = dense @ part ** np.arange(1, dense.shape[1] + 1)[:, None] * span
    theirs = torch.stack([torch.stack(list(each)) for each in rates])[torch.as_tensor(within), :, torch.as_tensor(own)]
    return state + (problem.layout.columns(by_stage, z).movedim(0, 1) * theirs).sum(1)


def _within(tableau: Tableau, start: float, end: float, time: float, z: Tensor, rates: Sequence[Tensor]) -> Tensor:
    """The state at a time within a step."""
    powers = ((time - start) / (end - start)) ** np.arange(1, len(tableau.dense[0]) + 1)
    return combine(z, float(end - start), (np.asarray(tableau.dense) @ powers).tolist(), rates)
