"""Three gradients of one solve.

`backprop` differentiates the solver's own operations. `checkpoint` gives the same gradient, but keeps only the state
before each step and recomputes the stages. `adjoint` integrates the continuous adjoint equation backwards, with solver
settings of its own: memory for a single state, and a gradient of the flow rather than of the numbers computed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint

from windermere.errors import FieldError, UnknownNameError, UsageError
from windermere.solvers.field import Rate
from windermere.solvers.once import differentiable_once
from windermere.solvers.runge_kutta import Evaluations, Piece, Remember, Walked
from windermere.solvers.solver import Solvers
from windermere.solvers.tableaus import Tableau


@dataclass(frozen=True)
class Adjoint:
    """`gradient=Adjoint(...)`: the continuous adjoint, with settings of its own.

    `solver` solves the adjoint equation; None takes the forward one. `parameters` are what the field depends on, if it
    is a plain function; those of a module are found.
    """

    solver: Solvers | None = None
    """Solves the adjoint equation; None takes the solver of the forward pass."""
    parameters: Iterable[Tensor] | None = None
    """What the field depends on, where it is a plain function; a module's own parameters are found."""

    def __post_init__(self) -> None:
        given = self.parameters
        if given is None:
            return
        # module.parameters() can be gone through only once
        listed = tuple(given) if isinstance(given, Iterable) and not isinstance(given, Tensor) else (None,)
        if not all(isinstance(p, Tensor) for p in listed):
            raise UsageError(
                "an Adjoint's parameters are several tensors, such as a list or module.parameters(), not a "
                f"{type(given).__name__}"
            )
        object.__setattr__(self, "parameters", listed)


Gradient: TypeAlias = Literal["backprop", "checkpoint", "adjoint"] | Adjoint
GRADIENTS = ("backprop", "checkpoint", "adjoint")


def check_gradient(gradient: Any) -> None:
    if not isinstance(gradient, Adjoint) and gradient not in GRADIENTS:
        raise UnknownNameError("gradient", str(gradient), GRADIENTS)


def check_unchanged(tensors: Callable[[], tuple[Tensor, ...]]) -> Callable[[], None]:
    """What is run again must depend on the tensors of the solve: with others, its gradient would be wrong, and nobody
    would say so."""
    known = [(tensor, tensor._version) for tensor in tensors()]

    def check() -> None:
        now = tensors()
        if len(now) != len(known) or any(
            p is not own or p._version != v for p, (own, v) in zip(now, known, strict=True)
        ):
            raise UsageError(
                "the field's parameters are no longer those of the solve (changed in place, or put there for its time "
                "only, as by torch.func.functional_call): take its gradient before that, or gradient='backprop'"
            )

    return check


def checkpointed(record: Callable[[Evaluations], None], check: Callable[[], None] | None = None) -> Remember:
    """Keep a piece's inputs only, and run it again when its gradient is asked for; each repetition is recorded, after a
    check."""

    def remember(piece: Piece, evaluations: Evaluations) -> Piece:
        runs = 0

        def run(*inputs: Tensor) -> Any:
            nonlocal runs
            runs += 1
            if runs > 1:
                if check is not None:
                    check()
                record(evaluations)
            return piece(*inputs)

        return lambda *inputs: checkpoint(run, *inputs, use_reentrant=False)

    return remember


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

    def __post_init__(self) -> None:
        self.gradient = [torch.zeros_like(p) for p in self.parameters]
        self.tape: list[tuple[Tensor, Tensor]] = []
        self.checked = False

    def __call__(self, t: Tensor, stacked: Tensor) -> Tensor:
        z, a = stacked.unbind(self.axis)
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            k = self.rate(t.squeeze(-1) if t.ndim == stacked.ndim else t, z)
        if not self.checked:
            check_nothing_is_hidden(k, (z, *self.parameters))
            self.checked = True
        if k.requires_grad:
            (da,) = torch.autograd.grad(k, z, a, retain_graph=True, allow_unused=True)
        else:
            da = None
        self.tape.append((k, a))
        return torch.stack([k.detach(), torch.zeros_like(a) if da is None else -da], dim=self.axis)

    def settle(self, h: float | Tensor, accepted: Tensor | None) -> None:
        """Add one step's share, for the groups that accepted it."""
        taken, self.tape = self.tape[-self.tableau.stages :], []
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


Forward: TypeAlias = Callable[[Tensor], Walked]
Backward: TypeAlias = Callable[[AdjointRate, float, float, Tensor], Tensor]


@dataclass(frozen=True)
class AdjointPlan:
    """What the adjoint needs of a solve: how to go forward, and how to take (z, a) back between two times."""

    forward: Forward
    backward: Backward
    times: Sequence[float]
    make_rate: Callable[[], AdjointRate]
    walked: list[Walked]
    """Filled by the forward pass."""


class _AdjointSolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: AdjointPlan, z0: Tensor, *parameters: Tensor) -> Tensor:
        walked = plan.forward(z0)
        plan.walked.append(walked)
        states = torch.stack(walked.states)
        ctx.plan = plan
        ctx.save_for_backward(states, *parameters)  # so that parameters changed in between are an error
        return states

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (states, *_), (grad,), plan = ctx.saved_tensors, grads, ctx.plan
        rate = plan.make_rate()
        a = grad[-1]
        for i in range(len(plan.times) - 1, 0, -1):
            start = torch.stack([states[i], a], dim=rate.axis)
            end = plan.backward(rate, plan.times[i], plan.times[i - 1], start)
            a = end.unbind(rate.axis)[1] + grad[i - 1]
        return None, a, *rate.gradient


def solve_with_adjoint(plan: AdjointPlan, z0: Tensor, parameters: tuple[Tensor, ...]) -> Walked:
    states = cast(Tensor, _AdjointSolve.apply(plan, z0, *parameters))  # type: ignore[no-untyped-call]
    walked = plan.walked[0]
    # What was recorded on the way is no part of the adjoint equation: better no gradient than zero.
    recorded = [(t, z.detach()) for t, z in walked.recorded]
    return Walked(list(states.unbind(0)), walked.evaluations, walked.accepted, walked.rejected, recorded)


def check_at_the_start(rate: Rate, t: Tensor, z: Tensor, *, plain: bool) -> None:
    """A field may hide tensors that need gradients; the adjoint would leave these out without a word."""
    with torch.enable_grad():
        k = rate(t, z.detach())
    if plain and k.requires_grad:
        raise FieldError(
            "the field depends on tensors that need gradients, but as a plain function it does not say which: "
            "make it an nn.Module, or give gradient=Adjoint(parameters=...)"
        )
    check_nothing_is_hidden(k, ())


def check_nothing_is_hidden(k: Tensor, known: Iterable[Tensor]) -> None:
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
