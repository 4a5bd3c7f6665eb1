"""What is audited: anything that turns a batch of inputs into outputs by solving an ODE, under any solver.

Shapes: n samples, D = size of one sample's state at the end of the last solve.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import local
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from windermere.auditing.samples import size
from windermere.errors import AuditError, DoublePrecisionError, MissedSolvesError, SolverError
from windermere.nn import ODEBlock, ode_blocks, using
from windermere.nn.arithmetic import arithmetic_of, unrounded
from windermere.nn.copies import copy_of, why_not_copied
from windermere.nn.draws import Draws
from windermere.nn.float64 import double_of, naming_double
from windermere.nn.model_calls import about, evaluating, inputs_for, output_of, packed
from windermere.nn.ode_block import is_swapped
from windermere.nn.passes import Passes
from windermere.nn.shared import plain
from windermere.solvers import FixedStep, OnGrid, Solver, State, checking, counting
from windermere.solvers.landing import landing

UNROUNDED = (
    "made to round its products to {}, and audited without: solvers in its dtype, the reference flow in float64; the "
    "verdict is about the function that the weights define"
)
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
    dtype: str = "float32"
    """What it was computed in."""


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
    """What the solves of one pass were trained with, in their order; the last one decides sweeps."""

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


@dataclass(frozen=True)
class _Solved:
    """One call of a block."""

    block: ODEBlock
    field: Callable[..., Any]
    """With the conditions of this call."""
    start: State
    result: State
    swapped: bool
    nested: bool
    """Within the field of another, which calls it as often as it takes evaluations."""

    @property
    def shown(self) -> int:
        """How many times its result holds; 0 where it is the end alone."""
        return len(self.block.times) if len(self.block.times) > 2 else 0

    @property
    def end(self) -> State:
        if not self.shown:
            return self.result
        return self.result[-1] if isinstance(self.result, Tensor) else tuple(part[-1] for part in self.result)


class ModelSubject:
    """Any module with ODEBlocks inside."""

    library = "windermere"

    def __init__(self, model: nn.Module) -> None:
        self.model = model = copy_of(model)
        self.solvers = tuple(block.solver for block in ode_blocks(model))
        if not all(isinstance(solver, Solver) for solver in self.solvers):
            raise AuditError("an ODEBlock has the solvers of an ensemble's members: audit each member as a model alone")
        rounded = arithmetic_of(model)
        notes = () if rounded == "float32" else (UNROUNDED.format(rounded),)
        self._seen: tuple[str, ...] = (*notes, *why_not_copied(model))
        self._count, self._passes = SolveCount(), Passes(model)
        blocks = ode_blocks(model)
        self._stops = all(isinstance(block.solver, OnGrid) and not block.interpolate for block in blocks)
        """Whether all grids have the output times on them: then coarser ones are made to stop there too."""
        self._double: nn.Module | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._seen, *self._passes.notes)

    def forward(self, x: Any, change: Change | None, *, double: bool = False) -> Pass:
        return self._passes.run(lambda draws: self._pass(x, change, draws, double=double), double=double)

    def _pass(self, x: Any, change: Change | None, draws: Draws | None, *, double: bool) -> Pass:
        model = self._in_double() if double else self.model
        with ExitStack() as stack:
            if change is not None:
                stack.enter_context(using(model, change))
                if self._stops:
                    stack.enter_context(landing())
            if draws is not None:
                stack.enter_context(_drawing_alike(ode_blocks(model), draws))
            count = stack.enter_context(counting())
            result, solved = self._call(model, x, double=double)
        outer = [each for each in solved if not each.nested]
        self._count.check(size(x), change, solves=len(outer), missed=sum(not each.swapped for each in outer))
        last = solved[-1]
        self._seen += tuple(note for note in about(result) if note not in self._seen)
        states = packed(last.end, size(x))
        return Pass(
            outputs=as_outputs(output_of(result)),
            states=None if states is None else as_outputs(states),
            evaluations=int(np.max(count.checks)),
            dtype=self._passes.dtype(double=double),
        )

    def insight(self, x: Any) -> Insight | None:
        if self._passes.holds_draws:
            return None
        model = self._in_double()
        last = self._call(model, x, double=True)[1][-1]
        if not isinstance(last.start, Tensor) or len(last.start) != size(x):
            return None
        times = (last.block.times[0], last.block.times[-1])
        if not is_of_samples(last.field, last.start, times[0]):
            return None
        head = None if last.shown else _after(model, last.block)
        return Insight(field=last.field, start=last.start, times=times, head=head)

    def _call(self, model: nn.Module, x: Any, *, double: bool) -> tuple[Any, list[_Solved]]:
        """What the model returns, and its solves."""
        solved: list[_Solved] = []
        naming = naming_double(type(model).__name__, double)
        with naming, evaluating(model), unrounded(model), _hooks(ode_blocks(model), solved):
            arguments, named = inputs_for(model, x, double=double)
            result = model(*arguments, **named)
        if not solved:
            raise AuditError(f"this {type(model).__name__} has ODEBlocks, but its forward pass called none of them")
        return result, solved

    def _in_double(self) -> nn.Module:
        if self._double is None:
            self._double = double_of(self.model)
        return self._double


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
            outputs = self._passes.run(lambda _: self.predict(plain(x), own if change is None else change(own)))
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


@contextmanager
def _hooks(blocks: Sequence[ODEBlock], solved: list[_Solved]) -> Iterator[None]:
    here = local()

    def before(*_: Any) -> None:
        here.depth = getattr(here, "depth", 0) + 1

    def behind(block: ODEBlock, given: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        field, start = block.posed(*given, **named)
        here.depth -= 1
        solved.append(_Solved(block, field, start, result, is_swapped(block), nested=here.depth > 0))

    handles = [block.register_forward_pre_hook(before) for block in blocks]
    handles += [block.register_forward_hook(behind, with_kwargs=True) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _drawing_alike(blocks: Sequence[ODEBlock], draws: Draws) -> Iterator[None]:
    """Every evaluation of a block's field draws the same random numbers."""
    open_solves: list[Any] = []

    def before(*_: Any) -> None:
        open_solves.append(draws.of_a_solve())
        open_solves[-1].__enter__()

    def behind(*_: Any) -> None:
        open_solves.pop().__exit__(None, None, None)

    fields = [block.field for block in blocks]
    handles = [hook for b in blocks for hook in (b.register_forward_pre_hook(before), b.register_forward_hook(behind))]
    handles += [f.register_forward_hook(lambda *_: draws.again()) for f in fields if isinstance(f, nn.Module)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _after(model: nn.Module, block: ODEBlock) -> nn.Module | None:
    """What follows the block, where the model is a sequence of layers."""
    if not isinstance(model, nn.Sequential) or not any(child is block for child in model):
        return None
    position = next(i for i, child in enumerate(model) if child is block)
    return model[position + 1 :]
