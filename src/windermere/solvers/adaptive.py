"""Walking with steps chosen from an estimate of the local error, for each group on its own.

Control (times, steps, decisions) is NumPy in float64, one number for each group; states are torch. Choosing steps is
outside the gradient. Shapes: [*groups] for all NumPy arrays; () where all of the state is one group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.errors import SolverError, StepBudgetError, ToleranceError, VanishingStepError
from windermere.solvers.dense_output import Between
from windermere.solvers.fixed import non_finite
from windermere.solvers.initial_step import Numbers, by_group, probing_step, proposed_step
from windermere.solvers.problem import Problem, Walked
from windermere.solvers.runge_kutta import combine, stage_nodes, stages
from windermere.solvers.solver import Adaptive
from windermere.solvers.times import Times

SAFETY, MOST_GROWTH, MOST_SHRINKING = 0.9, 10.0, 0.2
Flags = NDArray[np.bool_]
Moment: TypeAlias = float | Numbers
"""A time: one for all, or where samples have times of their own one for each group."""


@dataclass(frozen=True)
class Tolerance:
    """What the local error may be: atol + rtol |z|, in an ensemble with each member's own numbers."""

    rtol: float | Tensor
    atol: float | Tensor

    @classmethod
    def of(cls, solvers: Sequence[Adaptive], z: Tensor) -> "Tolerance":
        if all(s == solvers[0] for s in solvers):
            return cls(solvers[0].rtol, solvers[0].atol)
        shape = (len(solvers), *(1,) * (z.ndim - 1))
        return cls(*(z.new_tensor([getattr(s, n) for s in solvers]).reshape(shape) for n in ("rtol", "atol")))

    def scale(self, *states: Tensor) -> Tensor:
        size = states[0].detach().abs()
        for other in states[1:]:
            size = torch.maximum(size, other.detach().abs())
        return self.atol + self.rtol * size


@dataclass
class Clock:
    """Where each group is, and what its next step will be."""

    t: Numbers
    h: Numbers
    """Size of the step to try next, positive in either direction of time."""
    evaluations: NDArray[np.int64]
    accepted: NDArray[np.int64]
    rejected: NDArray[np.int64]

    def attempt(self, end: Moment) -> Numbers:
        """The steps to try now: as proposed, or shortened to land on `end`; 0 for groups that are there."""
        left = abs(end - self.t)
        return np.where(self.h >= left * (1 - 1e-10), left, self.h)

    def reach(self, h: Numbers, end: Moment) -> Numbers:
        """Where these steps lead. One that lands does so exactly: t + h may err past the end by rounding."""
        return np.where(h == abs(end - self.t), end, self.t + np.copysign(h, end - self.t))

    def decide(self, h: Numbers, ratio: Numbers, end: Moment, order: int) -> Flags:
        """Accept or reject the steps tried, and propose the next ones."""
        active = self.t != end
        accept: Flags = active & (ratio <= 1)
        proposal = next_step(h, ratio, order)
        # A step shortened only to land does not shorten the one after it.
        proposal = np.where(accept, np.maximum(proposal, self.h), proposal)
        self.h = np.where(active, proposal, self.h)
        self.t = np.where(accept, self.reach(h, end), self.t)
        self.accepted += accept
        self.rejected += active & ~accept
        return accept


def next_step(h: Numbers, ratio: Numbers, order: int) -> Numbers:
    """The step that would just meet the tolerance, with a margin: 0.9 h / ratio^(1/order), within bounds.

    An accepted step never shrinks the next one; `ratio` is the estimated error over the tolerance.
    """
    with np.errstate(divide="ignore"):
        factor = SAFETY / ratio ** (1 / order)
    return h * np.clip(factor, np.where(ratio < 1, 1.0, MOST_SHRINKING), MOST_GROWTH)


def walk_adaptively(problem: Problem, between: Between | None = None) -> Walked:
    """Step through the times, landing on each; or from end to end, and tell what lies between of each step."""
    z, times = problem.z0, problem.times if between is None else problem.ends
    if not z.numel():
        return _walk_of_none(problem, times)
    tableau, tolerance = problem.tableau, Tolerance.of(problem.adaptive, z)
    _check_start(problem)
    _check_tolerance(problem, tolerance)
    clock, k = _start(problem, tolerance)
    known = np.full(clock.t.shape, problem.reuse)  # the groups whose first stage is known already
    visited, recorded = [z], [(clock.t, z)] if problem.record else []
    for end in times[1:]:
        while (active := clock.t != end).any():
            if (stale := active & ~known).any():
                first = problem.remember(problem.rate, np.asarray(stale, np.int64))
                k = first(problem.layout.columns(clock.t, z), z)
            h = clock.attempt(end)
            signed = np.copysign(h, end - clock.t)
            start, reached = clock.t, clock.reach(h, end)
            stepped, error, *rates = _attempt(problem, start, reached, signed, z, k, whole=between is not None)
            clock.evaluations += stale + active * (tableau.stages - 1)
            ratio = np.nan_to_num(_rms(error / tolerance.scale(z, stepped), problem), nan=np.inf, posinf=np.inf)
            accept = clock.decide(h, ratio, end, tableau.embedded_order + 1)
            overflowed = active & ~accept & np.isinf(ratio)
            if accept.any() and overflowed.any() and (stepped.requires_grad or problem.settle is not None):
                # On the way back through the others' steps, what overflowed would be zero times infinity. So once more,
                # with these groups left where they are; it costs time, and counts for none.
                reached, signed = np.where(overflowed, start, reached), np.where(overflowed, 0.0, signed)
                if not problem.reuse:
                    k = problem.rate(problem.layout.columns(start, z), z)
                stepped, _, *rates = _attempt(problem, start, reached, signed, z, k, whole=between is not None)
            if problem.settle is not None:
                problem.settle(by_group(signed, problem.layout, z), _mask(accept, problem, z))
            try:
                _check_progress(problem, clock, active & ~accept, ratio, times, (k, error))
            except SolverError as failure:
                failure.evaluations = clock.evaluations
                raise
            if between is not None:
                between.passed(start, reached, accept, z, rates)
            z = _select(accept, stepped, z, problem)
            if tableau.fsal:
                k = _select(accept, rates[-1], k, problem)
            elif problem.reuse:
                known = ~accept & (known | stale)
            if problem.record and accept.any():
                recorded.append((clock.t, z))
        visited.append(z)
    return Walked(visited, clock.evaluations, clock.accepted, clock.rejected, recorded)


def _walk_of_none(problem: Problem, times: Times) -> Walked:
    """An empty batch has no error to control: one step to each time, with the rate at the start, will do."""
    z = problem.z0
    moments = [np.full(problem.layout.groups, t) for t in times]
    once = np.ones(problem.layout.groups, np.int64)
    k = problem.remember(problem.rate, once)(problem.layout.columns(moments[0], z), z)
    states = [z, *(z + k for _ in times[1:])]
    recorded = list(zip(moments, states, strict=True))
    return Walked(states, once, once * (len(times) - 1), once * 0, recorded)


def _start(problem: Problem, tolerance: Tolerance) -> tuple[Clock, Tensor]:
    """The field at the start, and each group's first step (norms in units of the tolerance): two evaluations."""
    z, layout, times = problem.z0, problem.layout, problem.ends
    span = times[-1] - times[0]
    t, once = np.full(layout.groups, times[0]), np.full(layout.groups, span != 0, np.int64)  # one may stay at its start
    k = problem.remember(problem.rate, once)(layout.columns(t, z), z)
    with torch.no_grad():
        scale = tolerance.scale(z)
        d0, d1 = _rms(z / scale, problem), _rms(k / scale, problem)
        if (lost := np.asarray(~np.isfinite(d1))).any():
            culprits = _culprits(lost, (k,), problem)
            raise non_finite("the field", times[0], culprits, problem).after(once)
        h0 = np.minimum(probing_step(d0, d1), abs(span))
        probe = combine(z, by_group(np.copysign(h0, span), layout, z), (1.0,), (k,))
        probed = np.clip(t + np.copysign(h0, span), np.minimum(*times), np.maximum(*times))
        change = problem.rate(layout.columns(probed, z), probe) - k
        d2 = _rms(change / scale, problem) / np.where(h0 == 0, 1.0, h0)
    # A probe that went too far to be finite says only that: begin small, and let the error estimate decide.
    h = np.where(np.isfinite(d2), proposed_step(h0, d1, d2, problem.tableau.embedded_order), 1e-3 * h0)
    counts = np.zeros(layout.groups, np.int64)
    return Clock(t, np.minimum(h, abs(span)), 2 * once, counts.copy(), counts.copy()), k


def _attempt(
    problem: Problem, t: Numbers, reached: Numbers, h: Numbers, z: Tensor, k: Tensor, *, whole: bool
) -> tuple[Tensor, ...]:
    """One trial step: the state it leads to, the estimated local error, and the last stage, or the `whole` of them."""
    tableau, layout = problem.tableau, problem.layout
    times = layout.columns(stage_nodes(tableau, t, reached), z).unbind(0)
    size = by_group(h, layout, z)

    def trial(z: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        rates = stages(tableau, problem.rate, times, z, size, k)
        error = combine(torch.zeros_like(z), size, tableau.error_weights, [r.detach() for r in rates])
        return combine(z, size, tableau.b, rates), error, *(rates if whole else rates[-1:])

    moved: tuple[Tensor, ...] = problem.remember(trial, np.asarray((h != 0) * (tableau.stages - 1)))(z, k)
    return moved


def _select(accept: Flags, new: Tensor, old: Tensor, problem: Problem) -> Tensor:
    if accept.all():
        return new
    return torch.where(_mask(accept, problem, new), new, old) if accept.any() else old


def _mask(flags: Flags, problem: Problem, like: Tensor) -> Tensor:
    return problem.layout.columns(flags, like, torch.bool)


def _rms(value: Tensor, problem: Problem) -> Numbers:
    """Root mean square over each group's entries."""
    flat = value.detach().reshape(*problem.layout.groups, -1)
    means: Numbers = flat.square().mean(dim=-1).sqrt().cpu().double().numpy()
    return means


def _check_start(problem: Problem) -> None:
    if not problem.z0.isfinite().all():
        raise non_finite("the initial state", problem.times[0], ~problem.z0.isfinite(), problem)


def _check_tolerance(problem: Problem, tolerance: Tolerance) -> None:
    """Rounding the state once must not take half of what the local error may be."""
    z, solvers = problem.z0, problem.adaptive
    eps, scale = torch.finfo(z.dtype).eps, tolerance.scale(z)
    relative = next((s for s in solvers if s.atol == 0), None)
    if relative is not None and not scale.all():
        raise ToleranceError(
            f"with {relative} an entry of the state that is 0 may have no error at all: give an atol above 0"
        )
    lost = np.asarray(_rms(eps * z / scale, problem) > 0.5)
    if lost.any():
        raise ToleranceError(
            f"{str(z.dtype).removeprefix('torch.')} cannot resolve {_solver_of(solvers, lost)}: rounding the state "
            f"alone errs by up to {eps:.1g} of its size; loosen the tolerance or solve in float64"
        )


def _check_progress(
    problem: Problem,
    clock: Clock,
    rejected: Flags,
    ratio: Numbers,
    times: Times,
    values: tuple[Tensor, Tensor],
) -> None:
    """Stop where a field is not finite, where steps vanish, and where the budget is spent.

    `values` are the first stage and the estimated error of the steps tried.
    """
    solvers, budget = problem.adaptive, problem.adaptive[0].max_steps
    spent = (clock.accepted + clock.rejected >= budget) & (clock.t != times[-1])
    if not rejected.any() and not spent.any():
        return
    smallest = np.full(clock.t.shape, smallest_step(times, values[0].dtype))
    vanished = rejected & (clock.h < smallest)
    overflowed = rejected & np.isinf(ratio)
    if overflowed.any() and (not values[0].isfinite().all() or (vanished & overflowed).any()):
        raise non_finite("the field", _first(clock.t, overflowed), _culprits(overflowed, values, problem), problem)
    if vanished.any():
        whose = f", for {int(vanished.sum())} of {vanished.size} groups" if vanished.size > 1 else ""
        raise VanishingStepError(
            f"at t = {_first(clock.t, vanished):.6g} the step shrank below {_first(smallest, vanished):.1g} with "
            f"{_solver_of(solvers, vanished)}{whose}: the solution blows up, or the field is stiff or "
            "jumps there; loosen the tolerance, solve in float64, or regularise the field"
        )
    if spent.any():
        t = _first(clock.t, spent)
        passed = [abs(s - times[0]) <= abs(clock.t - times[0]) for s in times[1:]]
        landings, end = int(_first(np.sum(passed, axis=0), spent)), np.full(clock.t.shape, times[-1])
        landed = f"{landings} of them only landed on times asked for, so raise max_steps or leave out interpolate=False"
        advice = landed if 2 * landings > budget else "loosen the tolerance or raise max_steps"
        raise StepBudgetError(
            f"{budget} steps ({_first(clock.rejected, spent):g} of them rejected) brought the solve only to "
            f"t = {t:.6g} on its way to {_first(end, spent):g}, last step {_first(clock.h, spent):.2g}, "
            f"with {_solver_of(solvers, spent)}: {advice}"
        )


def smallest_step(times: Sequence[Any], dtype: torch.dtype) -> Any:
    """Ten roundings: of the span in the state's dtype, or of the time itself, which is a double. By group as times."""
    larger: Any = np.maximum if isinstance(times[0], np.ndarray) else max
    span, latest = abs(times[-1] - times[0]), larger(abs(times[0]), abs(times[-1]))
    return 10 * larger(torch.finfo(dtype).eps * span, np.finfo(np.float64).eps * latest)


def _culprits(groups: Flags, values: Sequence[Tensor], problem: Problem) -> Tensor:
    """Which entries of the state are to blame: those not finite in one of the values, or all of these groups."""
    concerned = _mask(groups, problem, values[0]).expand_as(values[0])
    for value in values:
        if (bad := ~value.isfinite() & concerned).any():
            return bad
    return concerned


def _solver_of(solvers: Sequence[Adaptive], groups: Flags) -> Adaptive:
    """The solver of the first of these groups; in an ensemble the first axis indexes members."""
    return solvers[np.argwhere(groups)[0][0]] if len(solvers) > 1 else solvers[0]


def _first(values: NDArray[Any], where: Flags) -> float:
    return float(np.atleast_1d(values)[np.atleast_1d(where)][0])
