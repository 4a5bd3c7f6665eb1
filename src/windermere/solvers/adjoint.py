"""The continuous adjoint: a second solve, of (z, dL/dz) backwards in time.

Shapes: a state and its gradient are stacked along an axis of 2, right after the axes of groups.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from windermere._torch_private import is_forward_mode, times_written
from windermere.errors import FieldError, SolverError, UsageError
from windermere.solvers.counting import Ledger
from windermere.solvers.field import FusedAdjoint, Layout, Prepared, Rate
from windermere.solvers.gradients import Adjoint, differentiable_once
from windermere.solvers.integrate import integrate
from windermere.solvers.members import by_sample, members_of, tally
from windermere.solvers.runge_kutta import Evaluations, Problem, Walked, check_kept
from windermere.solvers.solver import Adaptive, Solver, stopping_at
from windermere.solvers.tableaus import Tableau


def solve_with_adjoint(
    problem: Problem,
    prepared: Prepared,
    solvers: Sequence[Solver],
    times: Sequence[float],
    z0: Tensor,
    record: bool,
    settings: Adjoint,
    ledger: Ledger,
) -> Walked:
    """Solve as without gradients, and leave to autograd how to take a gradient back."""
    if is_forward_mode():
        raise UsageError(
            "the adjoint has no derivatives in forward mode (torch.autograd.forward_ad): take gradient='backprop' there"
        )
    back = _adjoint_solvers(settings, solvers, problem.layout)
    if problem.interpolate:  # on their way back, all land on the times asked for
        back = stopping_at(times, back)
    layout = problem.layout.regrouped(samples=by_sample(back))
    fused, rate, known = _taken_back(prepared, settings, back, layout, z0)
    parameters = tuple(p for p in known or () if p.requires_grad)
    if known is None or not (parameters or z0.requires_grad):  # else the way back looks at its first evaluation
        t = layout.columns(np.full(layout.groups, times[0]), z0)
        _check_at_the_start(rate, t, z0, plain=known is None)
    found: list[Walked] = []

    def forward(z: Tensor) -> Tensor:
        found.append(integrate(problem, solvers, times, z, record, prepared.walk, prepared.adapt))
        return torch.stack(found[0].states)

    way_back = _WayBack(times, back, layout, rate, parameters, fused, ledger)
    states = cast(Tensor, _AdjointSolve.apply(forward, way_back, z0, *parameters))  # type: ignore[no-untyped-call]
    # What was recorded on the way is no part of the adjoint equation: better no gradient than zero.
    recorded = [(t, z.detach()) for t, z in found[0].recorded]
    return replace(found[0], states=list(states.unbind(0)), recorded=recorded)


class _AdjointSolve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, forward: Callable[[Tensor], Tensor], way_back: "_WayBack", z0: Tensor, *parameters: Tensor
    ) -> Tensor:
        states = forward(z0)
        ctx.way_back = way_back
        ctx.save_for_backward(states, *parameters)  # so that parameters changed in between are an error
        return states

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (states, *_), (grad,) = ctx.saved_tensors, grads
        return None, None, *ctx.way_back.take(states, grad)


@dataclass(frozen=True)
class _WayBack:
    """How gradients of the states at some times are taken back to the first of them."""

    times: Sequence[float]
    solvers: Sequence[Solver]
    layout: Layout
    """The layout of the state alone, with the groups of these solvers."""
    rate: Rate
    parameters: tuple[Tensor, ...]
    fused: FusedAdjoint | None
    ledger: Ledger

    def take(self, states: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        """Gradients of the first state and of the parameters, from those of all states, [times, ...]."""
        rate = _AdjointRate(self.rate, len(self.layout.groups), self.solvers[0].tableau, self.parameters)
        a = grad[-1]
        for i in range(len(self.times) - 1, 0, -1):
            a = self._between(rate, (self.times[i], self.times[i - 1]), states[i], a) + grad[i - 1]
        return a, *rate.gradient

    def _between(self, rate: "_AdjointRate", times: tuple[float, float], z: Tensor, a: Tensor) -> Tensor:
        if self.fused is not None:
            adaptive = [s for s in self.solvers if isinstance(s, Adaptive)]
            done = self.fused.adjoin(rate.tableau, adaptive, times, self.layout.groups, z, a)
            if done is not None:
                rate.add(part for p, part in zip(self.fused.tensors, done.gradient, strict=True) if p.requires_grad)
                self._count(done.evaluations.reshape(self.layout.groups))
                return done.a
        reverse = Problem(rate.tableau, rate, self._stacked(), reuse=False, settle=rate.settle)
        try:
            with torch.no_grad():
                walked = integrate(reverse, self.solvers, times, torch.stack([z, a], dim=rate.axis), False)
        except SolverError as error:
            error.args = (f"on the adjoint's way back, {error}",)
            raise
        self._count(walked.evaluations)
        return walked.states[-1].unbind(rate.axis)[1]

    def _stacked(self) -> Layout:
        shape, groups = self.layout.shape, self.layout.groups
        pair = len(groups)
        return Layout(torch.Size((*shape[:pair], 2, *shape[pair:])), groups, lead=self.layout.lead, pair=pair)

    def _count(self, evaluations: Evaluations) -> None:
        self.ledger.add("backward", tally(evaluations, self.solvers, self.layout))


def _taken_back(
    prepared: Prepared, settings: Adjoint, back: Sequence[Solver], layout: Layout, z0: Tensor
) -> tuple[FusedAdjoint | None, Rate, Iterable[Tensor] | None]:
    """The field's own way back, where it has one that can; the rate to go back by; and what that depends on, None where
    nobody says."""
    fused, known = prepared.adjoint, settings.parameters
    if known is None and fused is not None and fused.can(back[0].tableau, back, layout.groups, z0):
        return fused, layout.packed_rate(fused.rate), fused.tensors
    if known is None and prepared.tensors is not None:
        known = prepared.tensors()
    return None, layout.packed_rate(prepared.rate), known


def _adjoint_solvers(settings: Adjoint, forward: Sequence[Solver], layout: Layout) -> Sequence[Solver]:
    """The forward pass's own; or the one asked for, in an ensemble for every member, or one for each."""
    if settings.solver is None:
        return forward
    solvers, members = members_of(settings.solver)
    if members is None:
        return tuple(solvers) * len(forward)
    if not layout.ensemble or members != len(forward):
        raise UsageError(
            f"the adjoint was given {members} solvers: it takes one, or in an ensemble one for each member"
        )
    return solvers


@dataclass
class _AdjointRate:
    """The rate of (z, a), with da/dt = -a^T df/dz, stacked along `axis`; gathers the gradient of the parameters.

    That gradient is an integral, not part of the state: it is a sum over accepted steps of h b_i a_i^T df/dp, each
    group with its own h, so it needs no error control of its own (Kidger, Chen, Lyons 2021).
    """

    rate: Rate
    axis: int
    tableau: Tableau
    parameters: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        self.gradient = [torch.zeros_like(p) for p in self.parameters]
        self.tape: list[tuple[Tensor, Tensor]] = []
        self.written: list[int | None] = []
        self.checked = False

    def __call__(self, t: Tensor, stacked: Tensor) -> Tensor:
        z, a = stacked.unbind(self.axis)
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            k = self.rate(t.squeeze(-1) if t.ndim == stacked.ndim else t, z)
        if not self.checked:
            _check_nothing_is_hidden(k, (z, *self.parameters))
            self.checked = True
        if k.requires_grad:
            (da,) = torch.autograd.grad(k, z, a, retain_graph=True, allow_unused=True)
        else:
            da = None
        self.tape.append((k, a))
        self.written.append(times_written(k))
        return torch.stack([k.detach(), torch.zeros_like(a) if da is None else -da], dim=self.axis)

    def settle(self, h: float | Tensor, accepted: Tensor | None) -> None:
        """Add one step's share, for the groups that accepted it."""
        check_kept([k for k, _ in self.tape], self.written)  # in `stages` they were copies
        taken, self.tape, self.written = self.tape[-self.tableau.stages :], [], []
        if accepted is not None and not accepted.any():
            return
        if isinstance(h, Tensor):
            h = h.squeeze(-1)
            accepted = None if accepted is None else accepted.squeeze(-1)
        outputs, cotangents = [], []
        for weight, (k, a) in zip(self.tableau.b, taken, strict=False):
            if weight != 0.0 and k.requires_grad:
                share = -h * weight * a
                outputs.append(k)
                cotangents.append(share if not isinstance(h, Tensor) or accepted is None else share * accepted)
        if outputs and self.parameters:
            self.add(torch.autograd.grad(outputs, self.parameters, cotangents, allow_unused=True))

    def add(self, shares: Iterable[Tensor | None]) -> None:
        for total, part in zip(self.gradient, shares, strict=True):
            if part is not None:
                total += part


def _check_at_the_start(rate: Rate, t: Tensor, z: Tensor, *, plain: bool) -> None:
    """A field may hide tensors that need gradients; the adjoint would leave these out without a word."""
    with torch.enable_grad():
        k = rate(t, z.detach())
    if plain and k.requires_grad:
        raise FieldError(
            "the field depends on tensors that need gradients, but as a plain function it does not say which: "
            "make it an nn.Module, or give gradient=Adjoint(parameters=...)"
        )
    _check_nothing_is_hidden(k, ())


def _check_nothing_is_hidden(k: Tensor, known: Iterable[Tensor]) -> None:
    """The graph of an evaluation may lead to tensors that need gradients only by way of those known."""
    seen = {tuple(get_gradient_edge(x))[:2] for x in known}
    ahead: list[Any] = [tuple(get_gradient_edge(k))[:2]] if k.requires_grad else []
    while ahead:
        edge = ahead.pop()
        if edge[0] is None or edge in seen:
            continue
        seen.add(edge)
        if (leaf := getattr(edge[0], "variable", None)) is not None:
            raise FieldError(
                f"the field depends on a tensor of shape {tuple(leaf.shape)} that needs a gradient and that the "
                "adjoint does not know of: make it a parameter of the field or part of the state, give all that the "
                "field depends on in gradient=Adjoint(parameters=...), or take gradient='backprop'"
            )
        ahead += edge[0].next_functions
