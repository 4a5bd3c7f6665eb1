"""What a hand-written sampling loop does: every call of its velocity, with the state, the time and the rate.

Shapes: n samples.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from windermere.auditing.sampler import TimeShape
from windermere.checks import is_whole
from windermere.errors import UsageError
from windermere.nn.model_calls import takes_hooks

Place: TypeAlias = int | str
"""Where an argument stands in a call: its position, or its name."""


@dataclass(frozen=True, eq=False)
class Call:
    """One evaluation of a velocity."""

    state: Tensor
    t: float
    rate: Tensor
    arguments: dict[Place, Any]
    """All of them, as they were given."""
    state_at: Place
    time_at: Place

    @property
    def time_shape(self) -> TimeShape:
        time = self.arguments[self.time_at]
        if not isinstance(time, Tensor) or time.ndim == 0:
            return "scalar"
        return "batch" if time.ndim == 1 else "column"

    @property
    def conditions(self) -> dict[str, Tensor]:
        """What it was given for each sample beside state and time, by names that a `Sampler` has no other use for."""
        others = {p: v for p, v in self.arguments.items() if p not in (self.state_at, self.time_at)}
        each = {p: v for p, v in others.items() if isinstance(v, Tensor) and v.shape[:1] == self.state.shape[:1]}
        return {_name(place): value for place, value in each.items()}


@dataclass(frozen=True, eq=False)
class Recording:
    """One run of a loop."""

    final: Tensor
    calls: tuple[Call, ...]


class Replayed(nn.Module):
    """A velocity called as a loop called it, at other states and times: velocity(x, t, **conditions)."""

    def __init__(self, velocity: Callable[..., Any], call: Call) -> None:
        super().__init__()
        self.velocity, self.call = velocity, call

    def forward(self, x: Tensor, t: Tensor, **conditions: Any) -> Any:
        call = self.call
        arguments = {place: conditions.get(_name(place), value) for place, value in call.arguments.items()}
        arguments |= {call.state_at: x, call.time_at: _like(call.arguments[call.time_at], t)}
        given = [value for place, value in arguments.items() if isinstance(place, int)]
        return self.velocity(*given, **{place: v for place, v in arguments.items() if isinstance(place, str)})


def record(loop: Callable[..., Any], velocity: Callable[..., Any], noise: Tensor, steps: int) -> Recording:
    """Run loop(velocity, noise, steps), or loop(noise, steps) where it has its velocity already, and look on."""
    seen: list[tuple[dict[Place, Any], Tensor]] = []
    others: set[torch.Size] = set()
    with torch.no_grad(), _watched(velocity, noise, seen, others) as watched:
        given = (watched, noise.clone(), steps) if takes_velocity(loop, velocity) else (noise.clone(), steps)
        final = loop(*given)
    if not isinstance(final, Tensor) or final.shape != noise.shape:
        what = list(final.shape) if isinstance(final, Tensor) else type(final).__name__
        raise UsageError(f"a loop returns its samples, of the noise's shape {list(noise.shape)}, not {what}")
    calls = _read(seen, noise)
    if not calls and (2 * len(noise), *noise.shape[1:]) in others:
        raise UsageError(
            "the loop calls this velocity with two states for each sample together, as guidance does: give a function "
            "that makes the guided velocity of one, and let the loop call that"
        )
    if not calls:
        raise UsageError(
            "the loop never called this velocity with a state of the noise's shape and a time: give the very module "
            "that it calls, or let it take the velocity as loop(velocity, noise, steps)"
        )
    return Recording(final.detach().clone(), calls)


def takes_velocity(loop: Callable[..., Any], velocity: Callable[..., Any]) -> bool:
    """Whether a loop is called as loop(velocity, noise, steps), by how many arguments it needs."""
    try:
        parameters = list(inspect.signature(loop).parameters.values())
    except (TypeError, ValueError):
        return True
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in positional)
    named = bool(positional) and any(word in positional[0].name for word in ("vel", "model", "net", "field", "v_"))
    if needed >= 3 or (len(positional) >= 3 and named):
        return True
    if len(positional) < 2:
        raise UsageError("a loop is called as loop(velocity, noise, steps) or loop(noise, steps): let it take these")
    if not takes_hooks(velocity):
        raise UsageError(
            "the loop does not take its velocity, and the calls of a function or a scripted module cannot be watched "
            "from outside: let it be called as loop(velocity, noise, steps)"
        )
    return False


@contextmanager
def _watched(
    velocity: Any, noise: Tensor, seen: list[tuple[dict[Place, Any], Tensor]], others: set[torch.Size]
) -> Iterator[Any]:
    """The velocity, whose calls are noted: by a hook of a module, or around a function. Of rates that do not have the
    noise's shape, `others`, the shapes are."""

    def note(arguments: tuple[Any, ...], named: dict[str, Any], rate: Any) -> None:
        given: dict[Place, Any] = dict(enumerate(arguments))
        given.update(named)
        if isinstance(rate, Tensor) and rate.shape == noise.shape:  # a loop may write to its tensors later
            kept = {place: v.detach().clone() if isinstance(v, Tensor) else v for place, v in given.items()}
            seen.append((kept, rate.detach().clone()))
        elif isinstance(rate, Tensor):
            others.add(rate.shape)

    if takes_hooks(velocity):
        handle = velocity.register_forward_hook(lambda module, a, k, rate: note(a, k, rate), with_kwargs=True)
        try:
            yield velocity
        finally:
            handle.remove()
        return

    @wraps(velocity)
    def noting(*arguments: Any, **named: Any) -> Any:
        rate = velocity(*arguments, **named)
        note(arguments, named, rate)
        return rate

    yield noting


def _read(seen: Sequence[tuple[dict[Place, Any], Tensor]], noise: Tensor) -> tuple[Call, ...]:
    """Which argument is the state and which the time: a number that changes from call to call. None where there is no
    such pair."""
    first = seen[0][0] if seen else {}
    times = [place for place, value in first.items() if all(_is_time(each.get(place), len(noise)) for each, _ in seen)]
    states = [p for p, v in first.items() if isinstance(v, Tensor) and v.shape == noise.shape and p not in times]
    if not states or not times:
        return ()
    moving = [place for place in times if len({_number(each[place]) for each, _ in seen}) > 1]
    time, state = (moving or times)[0], states[0]
    return tuple(Call(each[state], _number(each[time]), rate, each, state, time) for each, rate in seen)


def _name(place: Place) -> str:
    return f"argument_{place}"


def _number(time: Any) -> float:
    return float(time.flatten()[0]) if isinstance(time, Tensor) else float(time)


def _is_time(value: Any, samples: int) -> bool:
    """A number, or one for each sample that is the same for all."""
    if isinstance(value, float) or is_whole(value, least=0):
        return True
    if not isinstance(value, Tensor) or value.dtype == torch.bool or value.numel() not in (1, samples):
        return False
    return bool((value == value.flatten()[0]).all())


def _like(example: Any, t: Tensor) -> Any:
    """The time in the form in which the loop gave it, for as many samples as there are now."""
    if not isinstance(example, Tensor):
        return float(t.flatten()[0])
    return t.to(example.device)
