"""`audit_loop`: does a hand-written sampling loop do what it is meant to, one step of its method between two nodes?

The contract: `audit_loop(loop, velocity, noise, steps=10)` runs the loop, notes every call of the velocity, and gives a
`LoopReport`. Where `report.agrees`, `report.sampler` is the same loop as a `Sampler`, ready for an audit under other
solvers, and `report.verdict` that audit, if it was asked for; where it does not, `report.sentence` says what is wrong.

Shapes: n samples.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from windermere.auditing.audit import audit as audited
from windermere.auditing.loop_record import Call, Recording, Replayed, record
from windermere.auditing.loop_slips import Seen, wrong_count
from windermere.auditing.loop_walk import Walk, apart, is_grid, rounding_of
from windermere.auditing.sampler import Sampler
from windermere.auditing.verdict import Verdict
from windermere.checks import is_whole
from windermere.errors import AuditError, UsageError
from windermere.solvers import FixedStep, OnGrid, Solver
from windermere.solvers.tableaus import tableau
from windermere.solvers.times import check_times

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
    _check_noise(first, second, noise)
    twice = record(loop, velocity, noise, 2 * steps)
    seen = Seen.of(first, velocity, noise, table, start, end)
    wrong = wrong_count(len(first.calls), len(twice.calls), steps, table, first.calls) or seen.wrong
    if wrong is None and (other := Seen.of(twice, velocity, noise, table, start, end).wrong) is not None:
        wrong = f"with {steps} steps it is right, but not with {2 * steps}: there {other}"
    sampler = _sampler(velocity, first.calls[0], seen.walk, method, steps)
    asked, close = audit or bool(options), f"({seen.difference:.1g} of its samples)"
    if wrong is not None and asked:
        wrong += "; so it was not audited"
    return LoopReport(
        agrees=wrong is None,
        sentence=wrong or f"the loop is {method} on its {steps} nodes, to rounding {close}",
        method=method,
        steps=steps,
        evaluations=len(first.calls),
        nodes=tuple(seen.walk.nodes),
        sizes=tuple(seen.walk.sizes),
        departs=seen.departs,
        difference=seen.difference,
        sampler=sampler,
        verdict=audited(sampler, _inputs(noise, first.calls[0]), **options) if asked and wrong is None else None,
    )


def _check_noise(first: Recording, second: Recording, noise: Tensor) -> None:
    """Refuses loops that draw noise themselves."""
    if apart(first.calls[0].state, second.calls[0].state) > rounding_of(noise):
        raise UsageError(
            "the loop does not start from the noise that it is given, but from some that it draws: let it start there"
        )
    if apart(first.final, second.final) > rounding_of(noise):
        raise AuditError(NO_ODE_NOISE)


def _sampler(velocity: Callable[..., Any], call: Call, walk: Walk, method: str, steps: int) -> Sampler:
    """On the loop's own nodes where these are a grid, else with equal steps."""
    nodes = [walk.start, *walk.nodes[1:], walk.end]
    equal = FixedStep.of(method, steps=steps, span=abs(walk.span))
    is_equal = len(nodes) == steps + 1 and all(map(walk.is_same, nodes, equal.nodes(walk.start, walk.end).tolist()))
    solver: Solver = equal if is_equal or not is_grid(nodes) else OnGrid(method, tuple(nodes))
    return Sampler(Replayed(velocity, call), solver, (walk.start, walk.end), order="xt", time=call.time_shape)


def _inputs(noise: Tensor, call: Call) -> Any:
    """The noise, and what else the loop gave its velocity for each sample."""
    return {"noise": noise, **call.conditions} if call.conditions else noise


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
