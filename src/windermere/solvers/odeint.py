"""`odeint` and `odeint_adjoint`: torchdiffeq's calls, word for word, on our solvers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from windermere._torch_private import is_dynamo_compiling, uncompiled
from windermere.errors import UsageError, describe_value
from windermere.solvers import odeint_call
from windermere.solvers.field import Field
from windermere.solvers.gradients import Adjoint
from windermere.solvers.layout import AnyState, State
from windermere.solvers.legs import combined
from windermere.solvers.odeint_call import Call
from windermere.solvers.odeint_options import (
    AdaptiveSteps,
    FixedSteps,
    constructed,
    is_fixed,
    needs_float64,
    read_adaptive,
    read_fixed,
    times_of,
)

CALLBACKS = tuple(f"callback_{what}step{way}" for way in ("", "_adjoint") for what in ("", "accept_", "reject_"))
"""What torchdiffeq calls at each step, where a field has it."""


def odeint(
    func: Field,
    y0: AnyState,
    t: Tensor,
    *,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = None,
    options: Mapping[str, Any] | None = None,
    event_fn: None = None,
) -> AnyState:
    """Integrate dy/dt = func(t, y) from y0 at t[0] through all times of t: torchdiffeq's call, on our solvers.

    func: a module or a function of a time and a state.
    y0: the first state, a tensor of any shape or a tuple of such, real or complex.
    t: a 1-D tensor of times that rise or fall. They may need a gradient.
    rtol, atol: tolerances of adaptive methods; of several, for entries or parts, the tightest counts.
    method: by torchdiffeq's names: "dopri5" (the default), "tsit5", "bosh3", "fehlberg2", "adaptive_heun"; with fixed
        steps "euler", "midpoint", "heun2", "heun3", "rk4" (the 3/8 rule).
    options: for fixed steps "step_size" or "grid_constructor", without which t itself is the grid, and "interp"; for
        adaptive ones "max_num_steps", "step_t" and "jump_t".

    Returns the states at all times, stacked along a first axis: [len(t), *y0.shape], for a tuple one of each part.
    What is missing here (events, callbacks, other methods and options) is refused in a sentence, and
    the documentation has a page on what differs, "Coming from torchdiffeq or diffrax".

    >>> import torch
    >>> from windermere import odeint
    >>> odeint(lambda t, y: -y, torch.ones(3), torch.linspace(0, 1, 5), rtol=1e-5, atol=1e-5).shape
    torch.Size([5, 3])
    """
    _refuse(func, event_fn)
    states: AnyState = _solved(func, y0, t, (method, options, rtol, atol), None)
    return states


def odeint_adjoint(
    func: Field,
    y0: AnyState,
    t: Tensor,
    *,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = None,
    options: Mapping[str, Any] | None = None,
    event_fn: None = None,
    adjoint_rtol: Any = None,
    adjoint_atol: Any = None,
    adjoint_method: str | None = None,
    adjoint_options: Mapping[str, Any] | None = None,
    adjoint_params: Iterable[Tensor] | None = None,
) -> AnyState:
    """`odeint` with the gradient of the continuous adjoint, which needs memory for the states at t only.

    adjoint_rtol, adjoint_atol, adjoint_method, adjoint_options: settings of the solve backwards; those of the solve
        forwards where they are not given. Its error control looks at the state and its gradient, not at that of the
        parameters, which torchdiffeq calls "seminorm".
    adjoint_params: what func depends on; the parameters of func where it is a module.

    >>> import torch
    >>> from windermere import odeint_adjoint
    >>> decay = torch.ones((), requires_grad=True)
    >>> t = torch.tensor([0.0, 1.0])
    >>> end = odeint_adjoint(lambda t, y: -decay * y, torch.ones(3), t, rtol=1e-5, atol=1e-5, adjoint_params=(decay,))
    >>> end[-1].sum().backward()
    >>> round(decay.grad.item(), 2)  # -3/e
    -1.1
    """
    _refuse(func, event_fn)
    if adjoint_params is None and not isinstance(func, nn.Module):
        raise UsageError(
            "the adjoint has to know what func depends on: make func an nn.Module, or give adjoint_params=..., which "
            "is () where there is nothing"
        )
    if adjoint_method not in (None, method) and options is not None and adjoint_options is None:
        raise UsageError("with an adjoint_method of its own, give adjoint_options too: options are of the other method")
    given = options if isinstance(options, Mapping) else {}  # what is none is refused with the way forwards
    inherited = {name: value for name, value in given.items() if name != "norm"}
    asked = (
        method if adjoint_method is None else adjoint_method,
        inherited if adjoint_options is None else adjoint_options,
        rtol if adjoint_rtol is None else adjoint_rtol,
        atol if adjoint_atol is None else adjoint_atol,
    )
    known = None if adjoint_params is None else tuple(adjoint_params)
    states: AnyState = _solved(func, y0, t, (method, options, rtol, atol), (asked, known))
    return states


Asked = tuple[str | None, Mapping[str, Any] | None, Any, Any]
"""Method, options, rtol and atol."""
WayBack = tuple[Asked, tuple[Tensor, ...] | None]
"""What is asked for backwards, and the parameters where they are given."""


def _solved(func: Field, y0: State, t: Tensor, asked: Asked, back: WayBack | None) -> Any:
    if is_dynamo_compiling():  # numbers decide here, which compiled code would have to wait for
        return uncompiled(_solved)(func, y0, t, asked, back)
    _check_state(y0)
    times, fixed = times_of(t), is_fixed(asked[0])
    if len(times) == 1:
        return combined(lambda part: part.unsqueeze(0), y0)
    start = combined(lambda part: torch.view_as_real(part) if part.is_complex() else part, y0)
    (dtype, *_) = _dtypes(start)
    if not fixed and needs_float64(asked[0], asked[2], dtype):
        start = combined(Tensor.double, start)
    field = func if _dtypes(y0) == _dtypes(start) else _on_parts(func, y0, dtype)
    steps = _read(asked, t, start, lambda construct: constructed(construct, func, y0, t), fixed=fixed)
    call = Call(func=func, field=field, start=start, t=t, times=times, dtype=dtype, steps=steps, gradient="backprop")
    return combined(_as_given, y0, odeint_call.answer(call if back is None else _with_adjoint(call, y0, *back)))


def _read(
    asked: Asked, t: Tensor, start: State, grid_of: Callable[[Any], Tensor], *, fixed: bool
) -> FixedSteps | AdaptiveSteps:
    method, options, rtol, atol = asked
    given = {} if options is None else options
    if not isinstance(given, Mapping):
        raise UsageError(f"options must be a dict, not a {type(given).__name__}")
    if fixed and method is not None:
        return read_fixed(method, given, grid_of, t)
    return read_adaptive(method, given, rtol, atol, _dtypes(start)[0], len(t) - 1)


def _with_adjoint(call: Call, y0: State, asked: Asked, known: tuple[Tensor, ...] | None) -> Call:
    """The call with the settings of its way back. That lands on every time of t, so a constructor's grid is made piece
    by piece."""

    def grid_of(construct: Any) -> Tensor:
        pieces = [call.t[i : i + 2].detach().flip(0) for i in reversed(range(len(call.t) - 1))]
        grids = [constructed(construct, call.func, y0, piece) for piece in pieces]
        return torch.cat([grids[0][:1], *(grid[1:] for grid in grids)])

    back, steps = _read(asked, call.t.detach(), call.start, grid_of, fixed=is_fixed(asked[0])), call.steps
    if isinstance(back, AdaptiveSteps) and (back.step_t or back.jump_t):
        if isinstance(steps, FixedSteps):
            raise UsageError("step_t and jump_t of adjoint_options need an adaptive method forwards too")
        steps = replace(steps, step_t=steps.step_t + back.step_t, jump_t=steps.jump_t + back.jump_t)
    alone = call.field is not call.func or (isinstance(steps, AdaptiveSteps) and steps.jump_t)
    if known is None and alone:  # what is solved is not func itself: its parameters have to be named
        known = tuple(call.func.parameters())
    return replace(call, steps=steps, gradient=Adjoint(solver=back.solver, parameters=known))


def _refuse(func: Any, event_fn: Any) -> None:
    if event_fn is not None:
        raise UsageError("windermere.odeint has no events: leave event_fn out, or take torchdiffeq's own odeint")
    called = [name for name in CALLBACKS if hasattr(func, name)]
    if called:
        raise UsageError(
            f"windermere.odeint calls back at no step, but func has a {called[0]}: take it away and look at steps with "
            "windermere.counting() or windermere.solve(..., record=True), or take torchdiffeq's own odeint"
        )


def _check_state(y0: Any) -> None:
    parts = y0 if isinstance(y0, tuple | list) and y0 else (y0,)
    if not all(isinstance(part, Tensor) for part in parts):
        raise UsageError(f"y0 must be a tensor or a tuple of tensors, not {describe_value(y0)}")
    for part in parts:
        if not part.is_floating_point() and not part.is_complex():
            raise UsageError(f"y0 must be real or complex numbers, not {part.dtype}: call .float() on it")


def _dtypes(state: State) -> list[torch.dtype]:
    return [part.dtype for part in ((state,) if isinstance(state, Tensor) else state)]


def _on_parts(func: Field, y0: State, dtype: torch.dtype) -> Field:
    """A field of states such as y0, for their real and imaginary parts, or in a wider dtype."""

    def part_of(own: Tensor, part: Tensor, rate: Tensor) -> Tensor:
        return (torch.view_as_real(rate.to(own.dtype)) if own.is_complex() else rate).to(part.dtype)

    return lambda t, z: combined(part_of, y0, z, func(t.to(dtype), combined(_as_given, y0, z)))


def _as_given(own: Tensor, part: Tensor) -> Tensor:
    return (torch.complex(*part.unbind(-1)) if own.is_complex() else part).to(own.dtype)
