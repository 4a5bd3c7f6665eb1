"""The continuous adjoint: a second solve, of (z, dL/dz) backwards in time.

Shapes: a state and its gradient are stacked along an axis of 2, right after the axes of groups.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from threading import get_ident
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from windermere._torch_private import (
    gradient_edge,
    has_hooks,
    is_forward_mode,
    pulled_back,
    times_written,
    without_hooks,
)
from windermere.errors import FieldError, SolverError, UsageError
from windermere.solvers.field import Rate, packed_rate
from windermere.solvers.gradients import Adjoint, differentiable_once
from windermere.solvers.integrate import integrate
from windermere.solvers.layout import Layout
from windermere.solvers.members import by_sample, members_of
from windermere.solvers.paths import FastAdjoint
from windermere.solvers.problem import Problem, Stacked, Walked
from windermere.solvers.runge_kutta import check_kept
from windermere.solvers.sample_times import check_steps_by_sample
from windermere.solvers.solver import Solver, stopping_at
from windermere.solvers.tableaus import Tableau
from windermere.solvers.torch_modes import as_if_uncompiled


def solve_with_adjoint(problem: Problem, settings: Adjoint) -> Walked:
    """Solve as without gradients, and leave to autograd how to take a gradient back."""
    if is_forward_mode():
        raise UsageError(
            "the adjoint has no derivatives in forward mode (torch.autograd.forward_ad): take gradient='backprop' there"
        )
    z0 = problem.z0
    way_back, known = _way_back(problem, settings)
    if known is None or not (way_back.parameters or z0.requires_grad):  # else the way back looks when it starts
        layout = way_back.problem.layout
        t = layout.columns(np.full(layout.groups, problem.times[0]), z0)
        _check_at_the_start(way_back.problem.rate, t, z0, plain=known is None)
    found: list[Walked] = []

    def forward(z: Tensor) -> Tensor:
        # Detached: a field that takes derivatives itself would not find its way through views of a graded state.
        found.append(integrate(problem.but(z0=z.detach(), gradient="backprop")))
        return found[0].stacked if way_back.has_stops else found[0].states[-1]

    solve = _AdjointSolve.apply
    ends = cast(Tensor, solve(forward, way_back, z0, *way_back.parameters))  # type: ignore[no-untyped-call]
    walked, states = found[0], Stacked(ends) if way_back.has_stops else [z0, ends]
    # What was recorded on the way is no part of the adjoint equation: better no gradient than zero.
    recorded = [(t, z.detach()) for t, z in walked.recorded]
    return Walked(states, walked.evaluations, walked.accepted, walked.rejected, recorded, walked.recomputed)


class _AdjointSolve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, forward: Callable[[Tensor], Tensor], way_back: "_WayBack", z0: Tensor, *parameters: Tensor
    ) -> Tensor:
        states = forward(z0)
        ctx.way_back = way_back
        ctx.save_for_backward(states, *parameters)  # so that parameters changed in between are an error
        return states if way_back.has_stops else states.clone()  # an end is handed on, and may be changed in place

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (states, *_), (grad,) = ctx.saved_tensors, grads
        return None, None, *ctx.way_back.take(states, grad)


@dataclass(frozen=True)
class _WayBack:
    """How gradients of the states at some times are taken back to the first of them."""

    problem: Problem
    """The solve of the state alone, with the solvers and groups of the way back; its first state is of no use."""
    parameters: tuple[Tensor, ...]
    fast: FastAdjoint | None

    @property
    def has_stops(self) -> bool:
        """Whether there are times between the first and the last, and so gradients of more than one state."""
        return len(self.problem.times) > 2

    def take(self, states: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        """Gradients of the first state and of the parameters, from those of all states, [times, ...]; or of the last
        one alone, where nothing lies between."""
        problem, times = self.problem, self.problem.times
        axis, reuse = len(problem.layout.groups), reuses_stages(problem)
        rate = AdjointRate(problem.rate, axis, problem.tableau, self.parameters, reuse)
        if not self.has_stops:
            return self._between(rate, (times[1], times[0]), states, grad), *rate.gradient
        on_states = grad.unbind(0)
        a = on_states[-1]
        for i in range(len(times) - 1, 0, -1):
            a = self._between(rate, (times[i], times[i - 1]), states[i], a) + on_states[i - 1]
        return a, *rate.gradient

    def _between(self, rate: "AdjointRate", times: tuple[Any, Any], z: Tensor, a: Tensor) -> Tensor:
        try:
            done = None if self.fast is None else self.fast.adjoin(times, z, a)
            if self.fast is not None and done is not None:
                own = [part for p, part in zip(self.fast.tensors, done.gradient, strict=True) if p.requires_grad]
                rate.take_over(own)
                self.problem.count("backward", done.evaluations.reshape(self.problem.layout.groups))
                return done.a
            with torch.no_grad(), as_if_uncompiled():  # its rate is differentiated by the state, then by parameters
                walked = integrate(self._reversed(rate, times, z, a))
        except SolverError as error:
            error.args = (f"on the adjoint's way back, {error}",)
            raise
        self.problem.count("backward", walked.evaluations)
        return walked.states[-1].unbind(rate.axis)[1]

    def _reversed(self, rate: "AdjointRate", times: tuple[Any, Any], z: Tensor, a: Tensor) -> Problem:
        """The solve of a state and its cotangent, stacked."""
        shape, groups, pair = self.problem.layout.shape, self.problem.layout.groups, rate.axis
        stacked = torch.Size((*shape[:pair], 2, *shape[pair:]))
        layout = Layout(stacked, groups, lead=self.problem.layout.lead, pair=pair)
        z0 = torch.stack([z, a], dim=pair)
        rate.first = []
        asked: dict[str, Any] = {"paths": (), "reuse": rate.reuse, "settle": rate.settle}
        return self.problem.but(rate=rate, times=times, z0=z0, layout=layout, **asked)


def reuses_stages(problem: Problem) -> bool:
    """Whether a step of the way back takes over a first stage that is known already, as forward ones do. Not where
    groups choose steps of their own: its share of the gradients would be of as many steps as there are groups."""
    return bool(problem.adaptive) and not problem.layout.groups


def _way_back(problem: Problem, settings: Adjoint) -> tuple[_WayBack, Iterable[Tensor] | None]:
    """The way back, by a fast path where one has it, and all tensors that it depends on; None where nobody says."""
    solvers = _adjoint_solvers(settings, problem)
    if problem.by_sample:
        check_steps_by_sample(solvers, ensemble=False)
    if problem.interpolate:  # on their way back, all land on the times asked for
        solvers = stopping_at(problem.times, solvers)
    layout = problem.layout.regrouped(samples=problem.by_sample or by_sample(solvers))
    back = problem.but(solvers=tuple(solvers), layout=layout, interpolate=False, record=False)
    if problem.compile:  # what is compiled cannot be differentiated twice, by the state and then by the parameters
        back = back.but(rate=packed_rate(layout, problem.field), compile=False)
    known, fast = settings.parameters, None
    if known is None:
        found = (path.adjoint(back) for path in problem.paths)
        fast = next((way for way in found if way is not None), None)
        if fast is not None:
            known, back = fast.tensors, back.but(rate=packed_rate(layout, fast.rate))
        elif problem.tensors is not None:
            known = problem.tensors()
    parameters = tuple(p for p in known or () if p.requires_grad)
    return _WayBack(back.but(z0=back.z0.detach()), parameters, fast), known


def _adjoint_solvers(settings: Adjoint, problem: Problem) -> Sequence[Solver]:
    """The forward pass's own; or the one asked for, in an ensemble for every member, or one for each."""
    if settings.solver is None:
        return problem.solvers
    solvers, members = members_of(settings.solver)
    if members is None:
        return solvers * len(problem.solvers)
    if not problem.layout.ensemble or members != len(problem.solvers):
        raise UsageError(
            f"the adjoint was given {members} solvers: it takes one, or in an ensemble one for each member"
        )
    return solvers


class Evaluation(NamedTuple):
    """What an evaluation leaves for its share of the gradients."""

    k: Tensor
    """The rate of the state, on autograd's tape."""
    a: Tensor
    """The state's cotangent."""
    written: int | None
    """How often the rate's memory had been written to."""


Tape: TypeAlias = list[Evaluation]


@dataclass
class AdjointRate:
    """The rate of (z, a), with da/dt = -a^T df/dz, stacked along `axis`; gathers the gradient of the parameters.

    That gradient is an integral, not part of the state: it is a sum over accepted steps of h b_i a_i^T df/dp, each
    group with its own h, so it needs no error control of its own (Kidger, Chen, Lyons 2021).
    """

    rate: Rate
    axis: int
    tableau: Tableau
    parameters: tuple[Tensor, ...]
    reuse: bool = False
    """Whether a step's first stage may be one that was evaluated before it."""

    def __post_init__(self) -> None:
        self.tape: Tape = []
        self.first: Tape = []
        """The first stage of the step to come, where that is known already."""
        self.checked = False

    @cached_property
    def gradient(self) -> list[Tensor]:
        """What is gathered so far."""
        return [torch.zeros_like(p) for p in self.parameters]

    def __call__(self, t: Tensor, stacked: Tensor) -> Tensor:
        z, a = stacked.unbind(self.axis)
        with torch.enable_grad():
            z, t = z.detach().requires_grad_(), t.squeeze(-1) if t.ndim == stacked.ndim else t
            k = self.rate(t, z)
        if not self.checked:
            check_nothing_is_hidden(k, (z, *self.parameters), given=(t,))
            self.checked = True
        if k.requires_grad:
            (da,) = pulled_back([k], [z], [a], retain_graph=True)
        else:
            da = None
        self.tape.append(Evaluation(k, a, times_written(k)))
        return torch.stack([k.detach(), torch.zeros_like(a) if da is None else -da], dim=self.axis)

    def settle(self, h: float | Tensor, accepted: Tensor | None) -> None:
        """Add one step's share, for the groups that accepted it."""
        taken = self.finish_step()
        if accepted is None or accepted.any():
            self.first = taken[-1:] if self.reuse and self.tableau.fsal else []
            self.add_share(taken, h, accepted)
        elif self.reuse:
            self.first = taken[:1]

    def finish_step(self) -> Tape:
        """The evaluations of the step that was taken; those of the next one come on a new tape."""
        tape, self.tape = [*self.first, *self.tape], []
        check_kept([one.k for one in tape], [one.written for one in tape])  # in `stages` they were copies
        if self.reuse and len(tape) > self.tableau.stages:  # after the first stage came a probe for the first step
            return [tape[0], *tape[1 - self.tableau.stages :]]
        return tape[-self.tableau.stages :]

    def add_share(self, taken: Tape, h: float | Tensor, accepted: Tensor | None) -> None:
        """Add the share of a step of this size."""
        self.add(self.share(taken, h, accepted))

    def share(
        self, taken: Tape, h: float | Tensor, accepted: Tensor | None, weights: Sequence[float] | None = None
    ) -> Sequence[Tensor | None]:
        """What a step of this size adds to the gradient of each parameter: all its stages, or some with their
        weights."""
        if isinstance(h, Tensor) and h.ndim:
            h = h.squeeze(-1)
            accepted = None if accepted is None else accepted.squeeze(-1)
        outputs, cotangents = [], []
        for weight, (k, a, _) in zip(self.tableau.b if weights is None else weights, taken, strict=False):
            if weight != 0.0 and k.requires_grad:
                share = -h * weight * a
                outputs.append(k)
                cotangents.append(share if not isinstance(h, Tensor) or accepted is None else share * accepted)
        if outputs and self.parameters:
            with _hooks_put_aside(self.parameters):
                return pulled_back(outputs, self.parameters, cotangents)
        return [None] * len(self.parameters)

    def take_over(self, shares: list[Tensor]) -> None:
        """Add shares that are nobody else's: the first need no zeros to be added to."""
        if "gradient" in vars(self):
            self.add(shares)
        else:
            self.gradient = shares

    def add(self, shares: Iterable[Tensor | None]) -> None:
        for total, part in zip(self.gradient, shares, strict=True):
            if part is not None:
                total += part


_hooked_in: set[int] = set()
"""The threads that have taken an adjoint's way back over parameters with hooks. As soon as there are two, hooks stay
where they are, and are called with parts of gradients too: another thread might be calling them."""


def _hooks_put_aside(parameters: Sequence[Tensor]) -> AbstractContextManager[None]:
    """Within it, hooks on parameters do not see the parts that their gradients are a sum of."""
    if not any(map(has_hooks, parameters)):
        return nullcontext()
    _hooked_in.add(get_ident())
    return without_hooks(parameters) if len(_hooked_in) == 1 else nullcontext()


def _check_at_the_start(rate: Rate, t: Tensor, z: Tensor, *, plain: bool) -> None:
    """A field may hide tensors that need gradients; the adjoint would leave these out without a word."""
    z = z.detach().clone()  # memory that is nobody else's
    with torch.enable_grad():
        k = rate(t, z)
    if plain and _hidden(k, (), (t, z)) is not None:
        raise FieldError(
            "the field depends on tensors that need gradients, but as a plain function it does not say which: "
            "make it an nn.Module, or give gradient=Adjoint(parameters=...), which odeint_adjoint calls adjoint_params"
        )
    check_nothing_is_hidden(k, (), given=(t, z))


def check_nothing_is_hidden(k: Tensor, known: Iterable[Tensor], given: Sequence[Tensor] = ()) -> None:
    """The graph of an evaluation may lead to tensors that need gradients only by way of those known, or to those that
    the field was given."""
    if (leaf := _hidden(k, known, given)) is not None:
        raise FieldError(
            f"the field depends on a tensor of shape {tuple(leaf.shape)} that needs a gradient and that the "
            "adjoint does not know of: make it a parameter of the field or part of the state, give all that the "
            "field depends on in gradient=Adjoint(parameters=...), or take gradient='backprop' (with torchdiffeq's "
            "calls: give adjoint_params=..., or take odeint)"
        )


def _hidden(k: Tensor, known: Iterable[Tensor], given: Sequence[Tensor]) -> Tensor | None:
    """A tensor that needs a gradient, by another way than over those known. A field that takes derivatives itself may
    have asked for them by what it was given: by the time, or parts of a state that needs none."""
    seen = {gradient_edge(x) for x in known}
    ahead: list[Any] = [gradient_edge(k)] if k.requires_grad else []
    while ahead:
        edge = ahead.pop()
        if edge[0] is None or edge in seen:
            continue
        seen.add(edge)
        leaf: Tensor | None = getattr(edge[0], "variable", None)
        if leaf is not None and not any(_share_memory(leaf, own) for own in given):
            return leaf
        ahead += edge[0].next_functions
    return None


def _share_memory(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
