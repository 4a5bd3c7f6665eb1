"""Three gradients of one solve.

`backprop` differentiates the solver's own operations. `checkpoint` gives the same gradient, but keeps only the state
before each step and recomputes the stages; in forward mode, whose tangents a step run again would not find, it is
`backprop`. `adjoint` (adjoint.py) integrates the continuous adjoint equation backwards, with solver settings of its
own: memory for a single state, and a gradient of the flow rather than of the numbers computed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from windermere._torch_private import times_written
from windermere.errors import FieldError, UnknownNameError, UsageError, describe_error
from windermere.solvers.integrate import checked, step_by_step
from windermere.solvers.paths import solve_in_one_piece
from windermere.solvers.problem import Evaluations, Piece, Problem, Remember, Stacked, Walked
from windermere.solvers.solver import Solvers


@dataclass(frozen=True)
class Adjoint:
    """`gradient=Adjoint(...)`: the continuous adjoint, with settings of its own.

    `solver` solves the adjoint equation; None takes the forward one. `parameters` are what the field depends on, if it
    is a plain function; those of a module are found.

    >>> import torch
    >>> import windermere as wm
    >>> z = torch.ones(1, requires_grad=True)
    >>> solver = wm.FixedStep("rk4", step=1 / 8)
    >>> wm.solve(lambda t, z: -z, z, solver, gradient=wm.Adjoint()).final.sum().backward()
    >>> round(float(z.grad), 4)  # exp(-1)
    0.3679
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


GradientName: TypeAlias = Literal["backprop", "checkpoint", "adjoint"]
Gradient: TypeAlias = GradientName | Adjoint
GRADIENTS: tuple[GradientName, ...] = get_args(GradientName)


def check_gradient(gradient: Any) -> None:
    if not isinstance(gradient, Adjoint) and gradient not in GRADIENTS:
        raise UnknownNameError("gradient", str(gradient), GRADIENTS)


def check_unchanged(tensors: Callable[[], tuple[Tensor, ...]]) -> Callable[[], None]:
    """What is run again must depend on the tensors of the solve: with others, its gradient would be wrong, and nobody
    would say so."""
    known = [(tensor, times_written(tensor)) for tensor in tensors()]

    def check() -> None:
        now = tensors()
        if len(now) != len(known) or any(
            p is not own or times_written(p) != v for p, (own, v) in zip(now, known, strict=True)
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
            try:
                return piece(*inputs)
            except StopIteration as error:  # inside of PyTorch's generators it would end one of those
                raise FieldError(
                    f"the field raises {describe_error(error)}, as next() does at the end of an iterator: give next() "
                    "a default, or let the field end its iterators itself"
                ) from error

        return lambda *inputs: checkpoint(run, *inputs, use_reentrant=False)

    return remember


def solve_with_checkpoints(problem: Problem) -> Walked:
    """In one piece, if a path evaluates all of it again when its gradient is due; else piece by piece."""
    walked = solve_in_one_piece(problem)
    if walked is None:
        # Made here, not in a piece of the solve that is run again.
        check = check_unchanged(problem.tensors) if problem.tensors is not None else None
        remember = checkpointed(lambda evaluations: problem.count("recomputed", evaluations), check)
        return step_by_step(replace(problem, remember=remember))
    end = walked.states.whole if isinstance(walked.states, Stacked) else walked.states[-1]
    if end.requires_grad:
        # Nothing here may hold the states: a hook that held its own tensor would keep all its memory.
        count = replace(problem, z0=problem.z0.detach()).count
        evaluations = walked.evaluations if walked.recomputed is None else walked.recomputed
        end.register_hook(lambda _: count("recomputed", evaluations))  # type: ignore[no-untyped-call]
    return checked(walked, problem)


Backward = Callable[..., Any]


def differentiable_once(backward: Backward) -> Backward:
    """Refuse to be asked with create_graph=True. PyTorch's `once_differentiable` would hand out what counts as a
    constant: a penalty on such a gradient has no effect, and nobody says so."""

    @wraps(backward)
    def guarded(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise UsageError(
                "the gradient of this solve, by the adjoint or by a field's own fast way, cannot be differentiated "
                "again (create_graph=True): take gradient='backprop' (odeint in place of odeint_adjoint), and wrap a "
                "field of Windermere's in a module"
            )
        if not all(map(_has_memory, grads)):
            raise UsageError(
                "the gradient of this solve, by the adjoint or by a field's own fast way, cannot be taken of many "
                "cotangents at once (is_grads_batched=True, vectorize=True, torch.vmap): take one after the other, or "
                "gradient='backprop' (odeint in place of odeint_adjoint)"
            )
        return backward(ctx, *grads)

    return guarded


def _has_memory(grad: Tensor) -> bool:
    """A tensor that stands for many has none of its own."""
    try:
        grad.data_ptr()
    except RuntimeError:
        return False
    return True
