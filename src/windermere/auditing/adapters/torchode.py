"""Models that solve with torchode.

While passes run, `solve` of its adjoints is replaced, for their threads alone; `solve_ivp` and `BacksolveAdjoint` go
through it too. What TorchScript has compiled is not seen.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.adapters.interception import Interception
from windermere.auditing.adapters.solves import Asked, Tape, Watch, as_written, nearest_method, stand_in_note
from windermere.auditing.adapters.torch_model import TorchSubject
from windermere.auditing.adapters.torchode_clock import Clock
from windermere.errors import AuditError, SolverError
from windermere.solvers import Adaptive, FixedStep, Solution, Solver

METHODS = {"Euler": "euler", "Heun": "heun", "Dopri5": "dopri54", "Tsit5": "tsit54"}
"""Its classes and our names."""
ADAPTIVE = {"Dopri5", "Tsit5"}
"""Those that have an error estimate here too."""


def _replace_solves() -> Callable[[], None]:
    adjoints = import_module("torchode.adjoints")
    alone, joint = adjoints.AutoDiffAdjoint.solve, adjoints.JointBacksolveAdjoint.solve
    adjoints.AutoDiffAdjoint.solve = _replacing(alone, _alone)
    adjoints.JointBacksolveAdjoint.solve = _replacing(joint, _together)

    def restore() -> None:
        adjoints.AutoDiffAdjoint.solve, adjoints.JointBacksolveAdjoint.solve = alone, joint

    return restore


ADJOINTS: Interception[Tape] = Interception(_replace_solves)


class TorchodeSubject(TorchSubject):
    """A module whose forward pass calls torchode, as it is."""

    library = "torchode"
    calls = ADJOINTS


def _replacing(original: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
    def solve(adjoint: Any, *given: Any, **named: Any) -> Any:
        tape = ADJOINTS.watcher(adjoint)
        if tape is None:
            return original(adjoint, *given, **named)
        return answer(tape, original, adjoint, *given, **named)

    return solve


_joint: ContextVar[Watch | None] = ContextVar("who watches a joint solve (all samples as one)", default=None)
"""The loop below such a solve is no solve of its own."""


def _alone(
    tape: Tape, own: Callable[..., Any], adjoint: Any, problem: Any, term: Any = None, dt0: Any = None, args: Any = None
) -> Any:
    used = term if term is not None else adjoint.step_method.term

    def original(watch: Watch) -> Any:
        return _check_solution(own(adjoint, problem, _Watched(used, watch), dt0, args), adjoint)

    if (watch := _joint.get()) is not None:
        return original(watch)
    return tape.answer(_Request(adjoint, problem, used, dt0, args).asked(original, control="sample"))


def _together(
    tape: Tape, own: Callable[..., Any], adjoint: Any, problem: Any, term: Any = None, dt0: Any = None,
    args: Any = None, **more: Any,
) -> Any:  # fmt: skip
    def original(watch: Watch) -> Any:
        token = _joint.set(watch)
        try:
            return own(adjoint, problem, term, dt0, args, **more)
        finally:
            _joint.reset(token)

    request = _Request(adjoint.forward_loop, problem, adjoint.term.term, dt0, args)
    return tape.answer(request.asked(original, control="batch"))


class _Watched:
    """A term whose evaluations are told."""

    def __init__(self, term: Any, watch: Watch) -> None:
        self.term, self.watch = term, watch

    def init(self, problem: Any, stats: Any) -> None:
        self.term.init(problem, stats)

    def vf(self, t: Tensor, y: Tensor, stats: Any, args: Any) -> Tensor:
        rate: Tensor = self.term.vf(t, y, stats, args)
        self.watch(rate)
        return rate


def _check_solution(solution: Any, adjoint: Any) -> Any:
    """Where a solve of torchode's fails, it returns uninitialised values behind a status."""
    failed = solution.status != 0
    if failed.any():
        names = import_module("torchode.status_codes").Status
        why = names(int(solution.status[failed][0])).name
        advice = "look for weights or inputs that are not finite" if why == "INFINITE_NORM" else "raise max_steps"
        raise SolverError(
            f"torchode's own {type(adjoint.step_method).__name__} stopped early ({why}) for {int(failed.sum())} of "
            f"{len(failed)} samples: loosen its tolerance, or {advice}"
        )
    return solution


@dataclass(frozen=True)
class _Request:
    """What one call of `solve` was given."""

    loop: Any
    problem: Any
    term: Any
    dt0: Any
    args: Any

    def asked(self, original: Callable[[Watch], Any], *, control: Any) -> Asked:
        clock = Clock.of(self.problem)
        own, notes = self.own(clock, control)
        return Asked(
            own=own,
            notes=notes,
            field=partial(self.rate, clock, self.stats()),
            start=self.problem.y0,
            times=clock.times,
            original=original,
            end_of=lambda solution: solution.ys[:, -1],
            result=partial(self.result, clock),
        )

    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = {}
        self.term.init(self.problem, stats)
        return stats

    def rate(self, clock: Clock, stats: dict[str, Any], s: Tensor, z: Tensor) -> Tensor:
        """torchode's terms take one time for each sample."""
        moment = s.reshape(-1).to(z.dtype).expand(len(z))
        if clock.same:
            rate: Tensor = self.term.vf(moment, z, stats, self.args)
            return rate
        scaled: Tensor = self.term.vf(clock.start + clock.span * moment, z, stats, self.args) * clock.span[:, None]
        return scaled

    def own(self, clock: Clock, control: Any) -> tuple[Solver, tuple[str, ...]]:
        """Our equivalent. A method without an error estimate keeps its first step under any controller."""
        name, controller = type(self.loop.step_method).__name__, self.loop.step_size_controller
        adaptive = hasattr(controller, "rtol") and name != "Euler"
        known = name in METHODS and (name in ADAPTIVE or not adaptive)
        order = self.loop.step_method.convergence_order()
        method = METHODS[name] if known else nearest_method(order, adaptive=adaptive)
        notes = () if known else (stand_in_note("torchode", f"adaptive {name}" if adaptive else name, method),)
        if adaptive:
            rtol, atol = as_written(controller.rtol), as_written(controller.atol)
            return Adaptive(method, rtol=rtol, atol=atol, control=control), notes
        moving = clock.span != 0
        steps = (self.first_step(controller, order).expand(len(moving))[moving] / clock.span[moving]).abs()
        if steps.max() > steps.min() * (1 + 1e-6):
            notes = (
                *notes,
                "samples have steps of their own: where one solver must stand for all, it takes the finest",
            )
        return FixedStep(method, step=as_written(steps)), notes

    def first_step(self, controller: Any, order: int) -> Tensor:
        step, _, _ = controller.init(self.term, self.problem, order, self.dt0, stats=self.stats(), args=self.args)
        return torch.as_tensor(step)

    def result(self, clock: Clock, solution: Solution) -> Any:
        states = solution.states
        if not isinstance(states, Tensor):
            raise AuditError("torchode's state became a tuple on the way")
        samples = torch.arange(states.shape[1], device=states.device)[:, None]
        ys = states[torch.as_tensor(clock.places, device=states.device), samples]
        counts = {
            "n_f_evals": solution.stats.evaluations,
            "n_steps": np.add(solution.stats.accepted, solution.stats.rejected),
            "n_accepted": solution.stats.accepted,
            "n_initialized": ys.shape[1],
        }
        stats = {name: torch.as_tensor(np.broadcast_to(value, len(ys)).copy()) for name, value in counts.items()}
        status = torch.zeros(len(ys), dtype=torch.long, device=ys.device)
        return import_module("torchode.solution").Solution(clock.outputs, ys, stats, status)
