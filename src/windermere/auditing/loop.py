"""`audit_loop`: does a hand-written sampling loop do what it is meant to, one step of its method between two nodes?

The contract: `audit_loop(loop, velocity, noise, steps=10)` runs the loop, notes every call of the velocity, and gives a
`LoopReport`. Where `report.agrees`, `report.sampler` is the same loop as a `Sampler`, ready for an audit under other
solvers, and `report.verdict` that audit, if it was asked for; where it does not, `report.sentence` says what is wrong.

Shapes: n samples, N steps.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, nan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.audit import audit as audited
from windermere.auditing.loop_record import Call, Recording, Replayed, record
from windermere.auditing.sampler import Sampler
from windermere.auditing.verdict import Verdict
from windermere.checks import is_whole
from windermere.errors import AuditError, UsageError
from windermere.solvers import FixedStep, OnGrid, Solver, solve
from windermere.solvers.tableaus import METHODS, Tableau, tableau
from windermere.solvers.times import check_times

SAME_TIME = 1e-4
"""Times and steps within this share of the time span are the same: many loops add up their time in float32."""
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-4}
"""The share of the samples' size by which two walks over the same nodes may differ; more in coarser dtypes."""
NO_ODE_NOISE = (
    "the same noise gives other samples the second time, so the loop draws noise between its steps: it solves a "
    "stochastic differential equation, whose samples no finer step reproduces, and is no ODE to audit; turn the noise "
    "off (as eta = 0 does in DDIM), or compare its samples at several numbers of steps by windermere.SetDistance"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopReport:
    """What a hand-written loop does, and whether it is the method that it is meant to be. Print it.

    >>> import torch
    >>> import windermere as wm
    >>> def loop(velocity, x, steps):
    ...     for k in range(steps):
    ...         x = x + velocity(x, k / steps) / steps
    ...     return x
    >>> report = wm.audit_loop(loop, lambda x, t: -x * t, torch.ones(4, 2), steps=10)
    >>> report.agrees, report.method, report.evaluations
    (True, 'euler', 10)
    """

    agrees: bool
    """Whether it is its method on its nodes, to rounding, and takes as many steps as it is asked for."""
    sentence: str
    method: str
    steps: int
    """As many as it was asked for."""
    evaluations: int
    """So often it evaluated the velocity."""
    nodes: tuple[float, ...]
    """The times at which its steps start."""
    sizes: tuple[float, ...]
    """What each step multiplied the velocity by, measured on the states."""
    departs: int | None
    """The first step after which its states are not those of the method on the same nodes; None where all are."""
    difference: float
    """How far its samples are from those of the method, as a share of their size; infinite where the nodes are none."""
    sampler: Sampler
    """The method with as many steps, as it should be: for an audit under other solvers."""
    verdict: Verdict | None
    """The audit of that sampler; None where none was asked for, or where the loop is something else."""

    @property
    def total(self) -> float:
        """The sum of its steps."""
        return float(sum(self.sizes))

    def __str__(self) -> str:
        checked = f"{'AGREES' if self.agrees else 'WRONG'}: {self.sentence}"
        return checked if self.verdict is None else f"{checked}\n\n{self.verdict}"


def audit_loop(
    loop: Callable[..., Any],
    velocity: Callable[..., Any],
    noise: Tensor,
    *,
    steps: int = 10,
    method: str = "euler",
    times: Sequence[float] = (0.0, 1.0),
    audit: bool = False,
    **options: Any,
) -> LoopReport:
    """Compare a hand-written sampling loop with its method on the same nodes, and audit it if it agrees. Returns a
    `LoopReport`; print it.

    loop: called as loop(velocity, noise, steps), or as loop(noise, steps) where it calls a module that it has already.
    velocity: the function or module that the loop calls, once for each stage of a step, with a state and a time. Where
        guidance takes two calls, give a function that does both.
    noise: what the loop starts from, [n, ...]; a few samples are enough.
    steps: how many steps to ask for. It is asked for twice as many too, to see whether it listens.
    method: what the loop is meant to be.
    times: where the noise is, and where the samples are.
    audit: whether to audit the loop's sampler on this noise too, of which there should be hundreds of samples then.
    options: those of `windermere.audit`, above all data=..., real samples; with any of them it is audited.

    >>> import torch
    >>> import windermere as wm
    >>> def loop(velocity, x, steps):
    ...     for k in range(steps):
    ...         x = x + velocity(x, k / steps) * 0.0884
    ...     return x
    >>> print(wm.audit_loop(loop, lambda x, t: -x * t, torch.ones(4, 2), steps=10))
    WRONG: its steps sum to 0.884, not to 1
    """
    start, end = _checked(noise, steps, times)
    _check_options(options)
    table = tableau(method)
    first, second = record(loop, velocity, noise, steps), record(loop, velocity, noise, steps)
    if _apart(first.final, second.final) > _rounding(noise):
        raise AuditError(NO_ODE_NOISE)
    twice = record(loop, velocity, noise, 2 * steps)
    walk = Walk.of(first, table, start, end)
    departs, difference = _compared(walk, Replayed(velocity, first.calls[0]), noise, method)
    wrong = (
        _wrong_count(len(first.calls), len(twice.calls), steps, table, first.calls)
        or _wrong_steps(walk)
        or _wrong_times(walk)
        or _wrong_states(walk, departs, difference, method)
    )
    sampler = _sampler(velocity, first.calls[0], walk, method, steps)
    asked = audit or bool(options)
    if wrong is not None and asked:
        wrong += "; so it was not audited"
    return LoopReport(
        agrees=wrong is None,
        sentence=wrong or f"the loop is {method} on its {steps} nodes, to rounding ({difference:.1g} of its samples)",
        method=method,
        steps=steps,
        evaluations=len(first.calls),
        nodes=tuple(walk.nodes),
        sizes=tuple(walk.sizes),
        departs=departs,
        difference=difference,
        sampler=sampler,
        verdict=audited(sampler, _inputs(noise, first.calls[0]), **options) if asked and wrong is None else None,
    )


@dataclass(frozen=True, eq=False)
class Walk:
    """A loop step by step, as its calls show it."""

    start: float
    end: float
    nodes: list[float]
    """[N]: the times of each step's first evaluation."""
    states: list[Tensor]
    """[N + 1] states: before each step, and the samples."""
    sizes: list[float]
    """[N]: the multiple of the velocity that fits each step best."""
    strays: list[float]
    """[N]: the share of each step that is no multiple of the velocity."""

    @classmethod
    def of(cls, recording: Recording, table: Tableau, start: float, end: float) -> "Walk":
        stages = table.propagating
        whole = len(recording.calls) // stages * stages
        grouped = [recording.calls[k : k + stages] for k in range(0, whole, stages)]
        states = [calls[0].state for calls in grouped] + [recording.final]
        moves = [_move(calls, table, after) for calls, after in zip(grouped, states[1:], strict=True)]
        nodes, strays = [calls[0].t for calls in grouped], [stray for _, stray in moves]
        return cls(start, end, nodes, states, _filled([size for size, _ in moves], [*nodes, end]), strays)

    @property
    def span(self) -> float:
        return self.end - self.start

    @property
    def places(self) -> list[float]:
        """[N + 1]: the times to which the steps have brought it."""
        return [self.start, *(self.start + np.cumsum(self.sizes)).tolist()]

    def is_same(self, one: float, other: float) -> bool:
        return abs(one - other) <= SAME_TIME * abs(self.span)


def _filled(sizes: Sequence[float], nodes: Sequence[float]) -> list[float]:
    """The sizes, and where one is not known that of the times, in the proportion that the others have to theirs."""
    known, meant = np.array(sizes), np.diff(nodes)
    sure = np.isfinite(known) & (meant != 0)
    ratio = float(np.median(known[sure] / meant[sure])) if sure.any() else 1.0
    return [float(size) for size in np.where(np.isfinite(known), known, ratio * meant)]


def _move(calls: Sequence[Call], table: Tableau, after: Tensor) -> tuple[float, float]:
    """The h for which a step is h times the method's mean of its rates, and the share of it that is not. Where the
    rates are next to nothing, h is not a number: any would do."""
    rate = sum(float(w) * call.rate.double() for w, call in zip(table.b, calls, strict=False))
    rate, change = torch.as_tensor(rate).flatten(), (after - calls[0].state).double().flatten()
    rounding = float(torch.finfo(after.dtype).eps) * float(after.double().norm())
    size = float(change @ rate / (rate @ rate).clamp(min=1e-300))
    left = max(0.0, float((change - size * rate).norm()) - 10 * rounding)
    stray = left / max(float(change.norm()), 1e-300)
    return (size if float(rate.norm()) > rounding / SAME_TIME else nan), stray


def _wrong_count(calls: int, twice: int, steps: int, table: Tableau, made: Sequence[Call]) -> str | None:
    wanted = table.propagating * steps
    if calls == twice:
        return f"it evaluates the velocity {calls} times for {steps} steps and for {2 * steps}: it ignores their number"
    if calls == wanted and twice == 2 * wanted:
        return None
    if calls == 2 * wanted and all(a.t == b.t for a, b in zip(made[::2], made[1::2], strict=True)):
        return (
            "it evaluates the velocity twice at each time, as guidance does: give a function that does both and "
            "returns the guided velocity, and let the loop call that"
        )
    said = f"it evaluates the velocity {calls} times for {steps} steps, which take {wanted} evaluations by {table.name}"
    fits = (name for name, t in METHODS.items() if t.propagating * steps == calls and t.b_embedded is None)
    other = " or ".join(map(repr, fits))
    return f"{said}: if the loop is meant to be another method, name it: method={other}" if other else said


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
    k = next(k for k, t in enumerate(nodes) if not walk.is_same(t, places[k]))
    scale = nodes[-1] / places[-2] if len(nodes) > 1 and places[-2] else 0.0
    if scale > 1.5 and all(walk.is_same(t / scale, p) for t, p in zip(nodes, places, strict=False)):
        return (
            f"its times are {scale:.4g} times what its steps sum to: if the network wants them so, give a velocity "
            "that scales its time itself, and let the loop call that"
        )
    return (
        f"in step {k + 1} it gives the velocity t = {nodes[k]:.4g}, where its steps have brought it to {places[k]:.4g}"
    )


def _wrong_states(walk: Walk, departs: int | None, difference: float, method: str) -> str | None:
    if difference <= _rounding(walk.states[0]) and departs is None:
        return None
    where = "" if departs is None else f", first after step {departs + 1}"
    return f"its samples differ from those of {method} on the same nodes by {difference:.2g} of their size{where}"


def _compared(walk: Walk, velocity: Replayed, noise: Tensor, method: str) -> tuple[int | None, float]:
    """The first step after which the method on the same nodes is elsewhere, and how far its samples are from these."""
    nodes = (*walk.nodes, walk.end)
    if not _is_grid(nodes):
        return 0, inf
    sampler = Sampler(velocity, OnGrid(method, nodes), order="xt", time=velocity.call.time_shape)
    with torch.no_grad():
        found = solve(sampler.field, noise, sampler.solver, nodes).states
    apart = [_apart(mine, theirs) for mine, theirs in zip(found[1:], walk.states[1:], strict=True)]
    return next((k for k, a in enumerate(apart) if a > _rounding(noise)), None), apart[-1]


def _sampler(velocity: Callable[..., Any], call: Call, walk: Walk, method: str, steps: int) -> Sampler:
    """On the loop's own nodes where these are a grid, else with equal steps."""
    nodes = [walk.start, *walk.nodes[1:], walk.end]
    equal = FixedStep.of(method, steps=steps, span=abs(walk.span))
    is_equal = len(nodes) == steps + 1 and all(map(walk.is_same, nodes, equal.nodes(walk.start, walk.end).tolist()))
    solver: Solver = equal if is_equal or not _is_grid(nodes) else OnGrid(method, tuple(nodes))
    return Sampler(Replayed(velocity, call), solver, (walk.start, walk.end), order="xt", time=call.time_shape)


def _is_grid(nodes: Sequence[float]) -> bool:
    """Whether there are several, which all rise or all fall."""
    return len({a < b for a, b in pairwise(nodes)}) == 1 and len(set(nodes)) == len(nodes)


def _inputs(noise: Tensor, call: Call) -> Any:
    """The noise, and what else the loop gave its velocity for each sample."""
    return {"noise": noise, **call.conditions} if call.conditions else noise


def _apart(one: Tensor, other: Tensor) -> float:
    scale = float(other.double().abs().max())
    return float((one.double() - other.double()).abs().max()) / max(scale, 1e-300)


def _rounding(like: Tensor) -> float:
    return ROUNDING.get(like.dtype, 2e-2)


def _check_options(options: dict[str, Any]) -> None:
    known = inspect.signature(audited).parameters
    if unknown := [name for name in options if name not in known or name in ("model", "batches", "trained_with")]:
        raise UsageError(f"'{unknown[0]}' is no option of audit_loop, nor one of audit that a loop has")


def _checked(noise: Any, steps: Any, times: Any) -> tuple[float, float]:
    if not isinstance(noise, Tensor) or noise.ndim == 0 or not noise.dtype.is_floating_point:
        raise UsageError("the noise must be a tensor of floating point numbers, [samples, ...]")
    if not is_whole(steps, least=2):
        raise UsageError(f"steps must be a whole number, at least 2, not {steps!r}")
    found = check_times(times)
    if len(found) != 2:
        raise UsageError("times are two: where the noise is, and where the samples are")
    return found[0], found[1]
