"""Models with ODEBlocks inside, as subjects.

Shapes: n samples, D = size of one sample's state at the end of the last solve.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import local
from typing import Any

import numpy as np
from torch import Tensor, nn

from windermere.auditing.samples import size
from windermere.auditing.subject import (
    Change,
    Insight,
    Pass,
    SolveCount,
    as_outputs,
    ends_of,
    finest,
    is_of_samples,
    leads,
)
from windermere.errors import AuditError
from windermere.nn import ODEBlock, ode_blocks
from windermere.nn.arithmetic import arithmetic_of, unrounded
from windermere.nn.copies import copy_of, why_not_copied
from windermere.nn.draws import Draws
from windermere.nn.float64 import double_of, naming_double
from windermere.nn.model_calls import about, evaluating, inputs_for, output_of, packed, takes_hooks
from windermere.nn.ode_block import changing, is_changed, solver_before_changes
from windermere.nn.passes import Passes
from windermere.solvers import OnGrid, Solver, State, counting
from windermere.solvers.landing import landing

UNROUNDED = (
    "made to round its products to {}, and audited without: solvers in its dtype, the reference flow in float64; the "
    "verdict is about the function that the weights define"
)


@dataclass(frozen=True)
class _Solved:
    """One call of a block."""

    block: ODEBlock
    field: Callable[..., Any]
    """With the conditions of this call."""
    start: State
    result: State
    own: Solver
    """What it was asked to solve with."""
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
        self.solvers = _checked([block.solver for block in ode_blocks(model)])
        rounded = arithmetic_of(model)
        notes = () if rounded == "float32" else (UNROUNDED.format(rounded),)
        self._seen: tuple[str, ...] = (*notes, *why_not_copied(model))
        self._has_chosen = False
        """Whether a pass has shown the solvers that the model takes."""
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
                stack.enter_context(changing(model, change))
                if self._stops:
                    stack.enter_context(landing())
            if draws is not None:
                stack.enter_context(_drawing_alike(ode_blocks(model), draws))
            count = stack.enter_context(counting())
            result, solved = self._call(model, x, double=double)
        if change is None:
            self._note_solvers(model, solved)
        outer = [each for each in solved if not each.nested]
        self._count.check(size(x), change, solves=len(outer), missed=sum(not each.swapped for each in outer))
        last = solved[-1]
        outputs = output_of(result)
        self._seen += tuple(note for note in about(result, outputs) if note not in self._seen)
        states = packed(last.end, size(x))
        return Pass(
            outputs=as_outputs(outputs),
            states=None if states is None else as_outputs(states),
            ends=ends_of([each.end for each in outer], size(x)),
            evaluations=int(np.max(count.checks)),
            dtype=self._passes.dtype(double=double),
        )

    def _note_solvers(self, model: nn.Module, solved: Sequence[_Solved]) -> None:
        """A model may choose its solvers on the way: of those that a block takes in one pass the finest is told."""
        chosen: dict[int, list[Solver]] = {}
        for each in solved:
            chosen.setdefault(id(each.block), []).extend(_checked([each.own]))
        blocks = zip(ode_blocks(model), self.solvers, strict=True)
        found = tuple(finest(chosen[id(block)]) if id(block) in chosen else own for block, own in blocks)
        if self._has_chosen and found != self.solvers:
            raise AuditError(
                f"the model solves one batch with {self.solvers[-1]} and another with {found[-1]}: audit it with one "
                "solver for all batches, as what is safe would depend on the batch"
            )
        self.solvers, self._has_chosen = found, True

    def insight(self, x: Any) -> Insight | None:
        if self._passes.holds_draws:
            return None
        model = self._in_double()
        result, solved = self._call(model, x, double=True)
        last = solved[-1]
        if not isinstance(last.start, Tensor) or len(last.start) != size(x):
            return None
        times = (last.block.times[0], last.block.times[-1])
        if not is_of_samples(last.field, last.start, times[0]):
            return None
        head = None if last.shown else _after(model, last, output_of(result))
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


def _checked(solvers: Sequence[Any]) -> tuple[Solver, ...]:
    if not all(isinstance(solver, Solver) for solver in solvers):
        raise AuditError("an ODEBlock has the solvers of an ensemble's members: audit each member as a model alone")
    return tuple(solvers)


@contextmanager
def _hooks(blocks: Sequence[ODEBlock], solved: list[_Solved]) -> Iterator[None]:
    here = local()

    def before(*_: Any) -> None:
        here.depth = getattr(here, "depth", 0) + 1

    def behind(block: ODEBlock, given: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        field, start = block.posed(*given, **named)
        here.depth -= 1
        own = solver_before_changes(block)
        solved.append(_Solved(block, field, start, result, own, is_changed(block), nested=here.depth > 0))

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
    handles += [f.register_forward_hook(lambda *_: draws.again()) for f in filter(takes_hooks, fields)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _after(model: nn.Module, solved: _Solved, outputs: Tensor) -> nn.Module | None:
    """What follows the solve, where the model is a sequence of layers and does no more than these."""
    layers = list(model) if isinstance(model, nn.Sequential) else []
    last = max((i for i, layer in enumerate(layers) if layer is solved.block), default=None)
    if last is None or not isinstance(solved.end, Tensor):
        return None
    head = nn.Sequential(*layers[last + 1 :])
    return head if leads(head, solved.end, outputs) else None
