"""`Sampler`: noise becomes samples by solving dx/dt = velocity(x, t), for fields that were trained without a solver.

The contract, for an audit: a Sampler is an ODEBlock, so `using` and audits swap its solver; it is called as
sampler(noise, **conditions). An audit's inputs are the noise alone, or a dict such as {"noise": z, "y": labels}, whose
arrays are cut with the samples unless shared=... names them.

Shapes: n samples.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from windermere.errors import AuditError, UnknownNameError, UsageError, describe_error
from windermere.nn import ODEBlock
from windermere.nn.functions import Function
from windermere.nn.model_calls import evaluating
from windermere.solvers import Gradient, Solver, final_state, solve

Order: TypeAlias = Literal["xt", "tx"]
"""velocity(x, t) or velocity(t, x)."""
TimeShape: TypeAlias = Literal["scalar", "batch", "column"]
"""One time without axes, one for each sample [n], or one for each sample that broadcasts against x, [n, 1, ...]."""
JUMPS = frozenset({"r", "dt", "delta_t", "step_size", "t2", "t_next", "t_end", "t_start", "t_prev"})
"""What models that learn jumps call their second time, or the length of a jump."""
NO_ODE_JUMPS = (
    "it takes a second time ('{}'): a model that learns jumps from one time to another, as MeanFlow, shortcut and "
    "consistency models do, has no rate of change that a solver integrates, so there is no ODE to audit; compare its "
    "samples at several numbers of jumps by windermere.SetDistance"
)


class Velocity(nn.Module):
    """A velocity as a field(t, z) of a solve."""

    def __init__(self, velocity: Callable[..., Any], order: Order | None, time: TimeShape | None) -> None:
        super().__init__()
        self.velocity = velocity if isinstance(velocity, nn.Module) else Function(velocity)
        self.order, self.time = order, time

    def forward(self, t: Tensor, z: Tensor, **conditions: Any) -> Any:
        """The velocity at this time, called as it wants to be."""
        order, time = self.order, self.time
        if order is None or time is None:
            raise UsageError("it is not known yet how this velocity is called: call the Sampler once, on noise")
        return _called(self.velocity, order, time, t, z, conditions)

    def learn(self, noise: Tensor, t: float, conditions: dict[str, Any]) -> None:
        """Find out how the velocity is called, where that was not said."""
        if self.order is None or self.time is None:
            self.order, self.time = find_call(self.velocity, noise, t, conditions, self.order, self.time)


class Sampler(ODEBlock):
    """Samples from noise, by a velocity field that was trained without a solver (flow matching, diffusion).

    velocity: a module or a function velocity(x, t, **conditions), or velocity(t, x, **conditions).
    solver: any; for a diffusion model's sigmas take `OnGrid("euler", sigmas)`.
    times: where the noise is and where the samples are; (0, 1) unless the solver has a grid of its own.
    order: "xt" or "tx". Default: what runs, if only one of them does.
    time: how the velocity wants its time: "scalar", "batch" for [samples], or "column" for [samples, 1, ...]. Default:
        what runs.

    Conditions, such as classes or a guidance scale, are given by name at each call and handed to the velocity.

    >>> import torch
    >>> import windermere as wm
    >>> sampler = wm.Sampler(lambda x, t: x * (1 + t), wm.FixedStep("euler", step=1 / 10), order="xt")
    >>> sampler(torch.ones(3, 2)).shape
    torch.Size([3, 2])
    """

    field: Velocity

    def __init__(
        self,
        velocity: Callable[..., Any],
        solver: Solver,
        times: Sequence[float] | None = None,
        *,
        order: Order | None = None,
        time: TimeShape | None = None,
        gradient: Gradient = "backprop",
    ) -> None:
        if not callable(velocity):
            raise UsageError(f"a velocity is a function or a module of x and t, not a {type(velocity).__name__}")
        for kind, name, known in (("order", order, get_args(Order)), ("shape of a time", time, get_args(TimeShape))):
            if name is not None and name not in known:
                raise UnknownNameError(kind, str(name), known)
        super().__init__(Velocity(velocity, order, time), solver, times=times, gradient=gradient)

    if TYPE_CHECKING:

        def __call__(self, noise: Any, **conditions: Any) -> Any: ...  # type: ignore[override]

    def forward(self, noise: Any, **conditions: Any) -> Any:  # type: ignore[override]
        """The samples at the last time; with more than two times those at all, [len(times), n, ...]."""
        self.field.learn(noise, 0.6 * self.times[0] + 0.4 * self.times[-1], conditions)
        solver, (field, _) = self.solver, self.posed(noise, **conditions)
        if len(self.times) == 2:
            return final_state(field, noise, solver, self.times, gradient=self.gradient)
        return solve(field, noise, solver, self.times, gradient=self.gradient, interpolate=self.interpolate).states

    def posed(self, noise: Any, **conditions: Any) -> tuple[Callable[..., Any], Any]:  # type: ignore[override]
        """The field under these conditions, and the noise."""
        return (partial(self.field, **conditions) if conditions else self.field), noise


def _called(velocity: Any, order: Order, time: TimeShape, t: Tensor, z: Tensor, conditions: dict[str, Any]) -> Any:
    shaped = t.reshape(()) if t.numel() == 1 else t
    if time != "scalar":
        column = (-1, *(1,) * (z.ndim - 1)) if time == "column" else (-1,)
        shaped = shaped.expand(len(z)).reshape(column) if shaped.ndim == 0 else shaped.reshape(column)
    return velocity(z, shaped, **conditions) if order == "xt" else velocity(shaped, z, **conditions)


def find_call(
    velocity: Any, noise: Tensor, t: float, conditions: dict[str, Any], order: Order | None, time: TimeShape | None
) -> tuple[Order, TimeShape]:
    """How a velocity is called: tried out on a few samples. Of two orders that both run nobody can say which is meant.

    Of several shapes of the time that give the same the first is taken.
    """
    few, some = _few(noise, conditions)
    orders, shapes = (order,) if order else get_args(Order), (time,) if time else get_args(TimeShape)
    calls = list(product(orders, shapes))
    with _undisturbed(velocity):
        once, again = ([_try(velocity, *call, few.new_tensor(t), few, some) for call in calls] for _ in range(2))
    tried = dict(zip(calls, once, strict=True))
    ran = {call: rate for call, rate in tried.items() if isinstance(rate, Tensor) and rate.shape == few.shape}
    if any(shape != "column" for _, shape in ran):  # by broadcasting, a column passes for a state now and then
        right = {order for order, shape in ran if shape != "column"}
        ran = {call: rate for call, rate in ran.items() if call[0] in right}
    failure = next((error for error in tried.values() if isinstance(error, Exception)), None)
    draws = not all(_same(again[calls.index(call)], rate) for call, rate in ran.items())
    if draws and len(ran) > 1 and len({order for order, _ in ran}) == 1:
        several = ", ".join(repr(shape) for _, shape in ran)
        raise UsageError(
            "this velocity gives another rate each time, since it draws noise, so that nobody can see which of several "
            f"shapes of the time it was trained with: name order='{next(iter(ran))[0]}' and time=..., one of {several}"
        )
    return _only(ran, velocity, conditions, failure, orders)


def _same(one: Any, other: Tensor) -> bool:
    return isinstance(one, Tensor) and torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)


def _try(velocity: Any, order: Order, time: TimeShape, t: Tensor, z: Tensor, conditions: dict[str, Any]) -> Any:
    """What the velocity returns, or raises."""
    try:
        return _called(velocity, order, time, t, z, conditions)
    except Exception as error:  # noqa: BLE001  # whatever a velocity raises when it is called in the wrong way
        return error


def _only(
    found: dict[tuple[Order, TimeShape], Tensor],
    velocity: Any,
    conditions: dict[str, Any],
    failure: Any,
    orders: tuple[Order, ...],
) -> tuple[Order, TimeShape]:
    if not found:
        raise AuditError(why_not_called(velocity, conditions, failure, orders)) from failure
    if len({order for order, _ in found}) > 1:
        raise UsageError(
            "this velocity runs as velocity(x, t) and as velocity(t, x), and only one can be meant: name it by "
            "order='xt' or order='tx'"
        )
    (call, first), *others = found.items()
    if not all(_same(rate, first) for _, rate in others):
        shapes = ", ".join(repr(shape) for _, shape in found)
        raise UsageError(
            f"this velocity takes times of several shapes, and gives something else for each: name the one that it was "
            f"trained with by time=..., one of {shapes}"
        )
    return call


def why_not_called(
    velocity: Any, conditions: dict[str, Any], failure: BaseException | None, orders: tuple[Order, ...]
) -> str:
    """A sentence about a velocity that cannot be called with a state and a time."""
    missing = [name for name in _required(velocity)[2:] if name not in conditions]
    jump = next((name for name in missing if name.lower() in JUMPS), None)
    if jump is not None:
        return "this velocity is no field of an ODE: " + NO_ODE_JUMPS.format(jump)
    if missing:
        return (
            f"this velocity needs more than a state and a time: give {', '.join(missing)} by name where the sampler is "
            f"called, as in sampler(noise, {missing[0]}=...); if that is a second time or the length of a jump, the "
            "model learns jumps, and has no ODE to audit"
        )
    told = "it returned something else than a rate of the noise's shape" if failure is None else describe_error(failure)
    calls = " or ".join(f"velocity({', '.join(order)})" for order in orders)
    return f"this velocity does not run as {calls}, with a time of any shape that was tried: {told}"


def _required(velocity: Any) -> list[str]:
    """The arguments that a velocity cannot do without, in order."""
    while isinstance(velocity, Function):
        velocity = velocity.forward
    try:
        parameters = inspect.signature(getattr(velocity, "forward", velocity)).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _few(noise: Tensor, conditions: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """So few samples that no other axis is as long, and their conditions: or a time [n] might broadcast along it."""
    n = len(noise)
    count = next(k for k in range(2, 10 + noise.ndim) if k not in noise.shape[1:])
    count = min(n, count)

    def cut(value: Any) -> Any:
        return value[:count] if isinstance(value, Tensor) and value.ndim and len(value) == n else value

    return noise[:count], {name: cut(value) for name, value in conditions.items()}


@contextmanager
def _undisturbed(velocity: nn.Module) -> Iterator[None]:
    """Trying a velocity out leaves no trace: neither in its buffers nor in the random numbers drawn later."""
    devices = [p.device for p in velocity.parameters() if p.device.type == "cuda"][:1]
    with torch.random.fork_rng(devices), evaluating(velocity):
        yield
