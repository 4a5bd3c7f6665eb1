"""What is wrong with a loop, in a sentence: its start, its steps, its times, or its states.

Shapes: N steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from windermere.auditing.loop_record import Call, Recording, Replayed
from windermere.auditing.loop_walk import Walk, apart, is_grid, rounding_of
from windermere.auditing.sampler import Sampler
from windermere.solvers import OnGrid, solve
from windermere.solvers.tableaus import METHODS, Tableau

SCALED = 5.0
"""Times so many times too large are meant for a network that wants them so; 2 times too large they are a slip."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """One run of a loop beside its method on the same nodes."""

    walk: Walk
    departs: int | None
    """The first step after which it is elsewhere."""
    difference: float
    """How far its samples are from the method's, as a share of their size."""
    wrong: str | None

    @classmethod
    def of(
        cls, run: Recording, velocity: Callable[..., Any], noise: Tensor, table: Tableau, start: float, end: float
    ) -> "Seen":
        walk = Walk.of(run, table, start, end)
        departs, difference = _compared(walk, Replayed(velocity, run.calls[0]), noise, table.name)
        wrong = (
            _wrong_start(walk, noise)
            or _wrong_steps(walk)
            or _wrong_times(walk)
            or _wrong_states(walk, departs, difference, table.name)
        )
        return cls(walk=walk, departs=departs, difference=difference, wrong=wrong)


def wrong_count(calls: int, twice: int, steps: int, table: Tableau, made: Sequence[Call]) -> str | None:
    wanted = table.propagating * steps
    if calls == twice:
        return f"it evaluates the velocity {calls} times for {steps} steps and for {2 * steps}: it ignores their number"
    if calls == wanted and twice == 2 * wanted:
        return None
    if calls == wanted - 1 and twice == 2 * wanted - 1 and table.propagating == 2:
        return (
            f"its last step takes one evaluation, not the two of {table.name}: as in the samplers of Karras et al., "
            "that is a step of euler"
        )
    if calls == 2 * wanted and all(a.t == b.t for a, b in zip(made[::2], made[1::2], strict=True)):
        return (
            "it evaluates the velocity twice at each time, as guidance does: give a function that does both and "
            "returns the guided velocity, and let the loop call that"
        )
    said = f"it evaluates the velocity {calls} times for {steps} steps, which take {wanted} evaluations by {table.name}"
    fits = (name for name, t in METHODS.items() if t.propagating * steps == calls and t.b_embedded is None)
    other = " or ".join(map(repr, fits))
    return f"{said}: if the loop is meant to be another method, name it: method={other}" if other else said


def _wrong_start(walk: Walk, noise: Tensor) -> str | None:
    """Else all that follows would be told of states that are not the loop's."""
    begun, given = walk.states[0].double().flatten(), noise.double().flatten()
    if apart(begun, given) <= rounding_of(noise):
        return None
    factor = float(begun @ given / (given @ given).clamp(min=1e-300))
    if apart(begun, factor * given) <= rounding_of(noise):
        return (
            f"it starts from {factor:.4g} times the noise that it is given: give noise of that size, and let the loop "
            "start from it as it is"
        )
    return "it does not start from the noise that it is given: let it start there"


def _wrong_steps(walk: Walk) -> str | None:
    """The states tell the steps, whatever times the velocity was given."""
    total, span = sum(walk.sizes), walk.span
    stray = next((k for k, share in enumerate(walk.strays) if share > 0.01), None)
    if stray is not None:
        return (
            f"step {stray + 1} of {len(walk.sizes)} changes the state by more than a multiple of the velocity "
            f"({walk.strays[stray]:.0%} of it is something else): another method, noise, or values that are clipped"
        )
    if walk.is_same(total, -span) and walk.is_same(walk.nodes[0], walk.end):
        ends = f"({walk.end:g}, {walk.start:g})"
        return f"its steps and its times go from {walk.end:g} to {walk.start:g}: if that is meant, give times={ends}"
    if walk.is_same(total, -span):
        return f"its steps sum to {total:.4g}, not to {span:.4g}: it goes the wrong way, so a sign is wrong"
    return None if walk.is_same(total, span) else f"its steps sum to {total:.4g}, not to {span:.4g}"


def _wrong_times(walk: Walk) -> str | None:
    """The times that the velocity is given must be those to which the steps have brought the state."""
    nodes, places = walk.nodes, walk.places
    if all(map(walk.is_same, nodes, places[:-1])):
        return None
    if all(map(walk.is_same, nodes, places[1:])):
        return "it gives the velocity the time at the end of each step, not at its start"
    if all(walk.is_same(t, walk.start + walk.end - p) for t, p in zip(nodes, places[:-1], strict=True)):
        return (
            f"its time runs from {nodes[0]:.4g} to {nodes[-1]:.4g} while its steps go from {walk.start:g} to "
            f"{walk.end:g}: one of them is the wrong way round"
        )
    mirrored = [walk.start + walk.end - place for place in places]
    for told, meant in (("what its steps sum to", places), ("what is left of its steps", mirrored)):
        scale = _scale(walk, meant[:-1])
        if scale >= SCALED:
            return (
                f"its times are {scale:.4g} times {told}: if the network wants them so, give a velocity that scales "
                "its time itself, and let the loop call that"
            )
    k = next(k for k, t in enumerate(nodes) if not walk.is_same(t, places[k]))
    return (
        f"in step {k + 1} it gives the velocity t = {nodes[k]:.4g}, where its steps have brought it to {places[k]:.4g}"
    )


def _scale(walk: Walk, meant: Sequence[float]) -> float:
    """By what all times are multiplied, 0 where these are no multiples of what is meant."""
    largest = max(range(len(meant)), key=lambda k: abs(meant[k]))
    scale = walk.nodes[largest] / meant[largest] if meant[largest] else 0.0
    same = scale and all(walk.is_same(t / scale, m) for t, m in zip(walk.nodes, meant, strict=True))
    return scale if same else 0.0


def _wrong_states(walk: Walk, departs: int | None, difference: float, method: str) -> str | None:
    if difference <= rounding_of(walk.states[0]) and departs is None:
        return None
    where = "" if departs is None else f", first after step {departs + 1}"
    return f"its samples differ from those of {method} on the same nodes by {difference:.2g} of their size{where}"


def _compared(walk: Walk, velocity: Replayed, noise: Tensor, method: str) -> tuple[int | None, float]:
    """The first step after which the method on the same nodes is elsewhere, and how far its samples are from these."""
    nodes = (*walk.nodes, walk.end)
    if not is_grid(nodes):
        return 0, inf
    sampler = Sampler(velocity, OnGrid(method, nodes), order="xt", time=velocity.call.time_shape)
    with torch.no_grad():
        found = solve(sampler.field, noise, sampler.solver, nodes).states
    far = [apart(mine, theirs) for mine, theirs in zip(found[1:], walk.states[1:], strict=True)]
    return next((k for k, a in enumerate(far) if a > rounding_of(noise)), None), far[-1]
