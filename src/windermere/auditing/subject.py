"""What is audited: anything that turns a batch of inputs into outputs by solving an ODE, under any solver.

Shapes: n samples, D = size of one sample's state at the end of the last solve.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from windermere.errors import AuditError, DoublePrecisionError, MissedSolvesError, SolverError
from windermere.nn.model_calls import copied, packed
from windermere.nn.passes import Passes
from windermere.nn.shared import plain
from windermere.solvers import FixedStep, Solver, State, checking, counting

SEVERAL = 8
"""More solves than these are taken to follow each other, as from one observation to the next."""
FEW = 8
"""Samples that show what is true of all, such as how a model takes them."""
Change: TypeAlias = Callable[[Solver], Solver]
"""From a solve's own solver to the one to test it with."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One batch through a model."""

    outputs: Tensor
    """[n, ...], float64 on the CPU; as the model has them until `by_sample` has found which axis is the samples'."""
    states: Tensor | None
    """[n, D], float64 on the CPU: where the last solve ended; None where a model hides it."""
    evaluations: int
    """How often all solves of the pass evaluated the field."""
    ends: Tensor | None = None
    """[n, E], float64 on the CPU: where all of several solves ended, side by side; None where there is one, or many."""
    dtype: str = "float32"
    """What it was computed in."""
    straight: bool = False
    """Whether some of its states lie on straight lines between two steps, as torchdiffeq draws them."""


@dataclass(frozen=True, kw_only=True)
class Insight:
    """The last solve of a model from inside: what evidence beyond predictions needs."""

    field: Callable[[Tensor, Tensor], Tensor]
    """field(t, z), in float64."""
    start: Tensor
    """[n, ...]: the states it starts from, in float64."""
    times: tuple[float, float]
    head: nn.Module | None
    """The layers after the solve, in float64, where they are known."""


class Subject(Protocol):
    """A model to be audited."""

    library: str
    """Where its solver comes from: `windermere`, `torchdiffeq`, ..."""
    solvers: tuple[Solver, ...]
    """What the solves of one pass were trained with, in their order; the last one decides sweeps, and `finest` names
    them."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the verdict must know, such as that a model can't run in float64."""
        ...

    def forward(self, x: Any, change: Change | None, *, double: bool = False) -> Pass:
        """A batch under the model's own solver (None) or a changed one; `double` asks for float64 throughout. The
        inputs that all samples share are marked in x: `shared.plain` takes the marks off.

        Raises `DoublePrecisionError` where the model can't run in float64.
        """
        ...

    def insight(self, x: Any) -> Insight | None:
        """The last solve from inside, None where the model hides it."""
        ...


def ends_of(ends: Sequence[State], samples: int) -> Tensor | None:
    """The ends of several solves side by side: the last alone need not show the errors of the others."""
    if not 1 < len(ends) <= SEVERAL:
        return None
    parts = [packed(end, samples) for end in ends]
    there = [part for part in parts if part is not None]
    return as_outputs(torch.cat([part.double() for part in there], dim=1)) if len(there) == len(parts) else None


def finest(solvers: Sequence[Solver]) -> Solver:
    """The solver that a change of all of them is named by: that with the finest precision, of the last one's kind. What
    is safe by that name is safe in each solve, where the coarsest one's would not be."""
    alike = [solver for solver in reversed(solvers) if type(solver) is type(solvers[-1])]
    return min(alike, key=lambda solver: solver.precision)


class SolveCount:
    """How many solves a batch takes under its own solver. Under another one as many must be swapped: a solve that keeps
    its own would pass for exact."""

    def __init__(self) -> None:
        self.own: dict[int, int] = {}
        """How many solves the last pass under the model's own solvers made, by the pass's number of samples."""

    def check(self, samples: int, change: Change | None, *, solves: int, missed: int) -> None:
        """`solves` are all that a pass made, those inside of fields aside, and `missed` those of them that no other
        solver reached."""
        if change is None:
            self.own[samples] = solves
        elif missed:
            raise MissedSolvesError(
                f"{missed} of {solves} solves of a pass run in threads that the model starts itself, where another "
                "solver cannot be put: let the model solve in the thread that calls it"
            )
        elif solves != self.own.get(samples, solves):
            raise MissedSolvesError(
                f"the model solves {self.own[samples]} times with its own solver, and {solves} times with another: an "
                "audit needs the same solves in every pass"
            )


class PredictSubject:
    """A callable predict(x, solver) from anywhere: no field, no states, and whatever precision it computes in."""

    library = "predict"

    def __init__(self, predict: Callable[[Any, Solver], Any], trained_with: Solver) -> None:
        self.predict = predict
        self.solvers: tuple[Solver, ...] = (trained_with,)
        self._passes = Passes(None)

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            "a bare predict shows no field: the reference is the finest solve it was asked for, in its own precision",
            *self._passes.notes,
        )

    def forward(self, x: Any, change: Change | None, *, double: bool = False) -> Pass:
        if double:
            raise DoublePrecisionError("a bare predict computes in its own precision")
        own = self.solvers[0]
        with counting() as count, checking():
            outputs = self._passes.run(lambda _: self.predict(copied(plain(x)), own if change is None else change(own)))
        evaluations = int(np.max(count.checks))
        return Pass(outputs=as_outputs(outputs), states=None, evaluations=evaluations, dtype="its own precision")

    def insight(self, x: Any) -> Insight | None:
        return None


def one_step(own: Solver) -> Solver:
    """A solver for trying a model out: it evaluates the field once, whatever the time span."""
    return FixedStep("euler", step=1e6)


def why_not_double(subject: Subject, x: Any) -> tuple[str, ...]:
    """A note where a model cannot run in float64."""
    try:
        subject.forward(x, one_step, double=True)
    except DoublePrecisionError as error:
        return (str(error),)
    except (SolverError, MissedSolvesError):
        pass  # one step may well blow up, in float64; what is missed is told later
    return ()


def as_outputs(outputs: Any) -> Tensor:
    """Torch, NumPy or JAX, as float64 on the CPU."""
    if outputs.is_complex() if isinstance(outputs, Tensor) else np.iscomplexobj(outputs):
        raise AuditError(
            "complex states and outputs cannot be audited: solve for real and imaginary parts, by torch.view_as_real, "
            "and return these"
        )
    if isinstance(outputs, Tensor):
        return outputs.detach().double().cpu()
    try:
        return torch.as_tensor(np.array(outputs, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise AuditError(
            f"the model returns a {type(outputs).__name__} that is no array of numbers: wrap it so that it returns one "
            "output for each sample"
        ) from error


def is_of_samples(rate: Callable[[Tensor, Tensor], Tensor], start: Tensor, t: float) -> bool:
    """Whether one sample's rate can be had alone: fields that hold a context for each sample can't give it."""
    moment = start.new_tensor(t)
    with torch.no_grad():
        try:
            alone, together = rate(moment, start[:1]), rate(moment, start[:FEW])[:1]
        except (RuntimeError, ValueError, IndexError):
            return False
    return alone.shape == together.shape and torch.allclose(alone, together, rtol=1e-6, atol=1e-9)


def leads(head: nn.Module, end: Tensor, outputs: Tensor) -> bool:
    """Whether these layers do all that happens between the end of a solve and the outputs: a scaling in between, or a
    forward pass of the model's own, would show here."""
    try:
        with torch.no_grad():
            again = head(end)
        return again.shape == outputs.shape and torch.allclose(again, outputs, rtol=1e-9, atol=1e-12)
    except Exception:  # what comes in between is what they were made for, and they may return anything  # noqa: BLE001
        return False
