"""What is audited: anything that turns a batch of inputs into outputs by solving an ODE, under any solver.

Shapes: n samples, D = size of one sample's state at the end of the last solve.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from windermere.audit.double import double_of, naming_double
from windermere.errors import DoublePrecisionError
from windermere.models import ODEBlock, ode_blocks, using
from windermere.models.architectures import arithmetic_of, unrounded
from windermere.solvers import Solver, checking, counting

UNROUNDED = (
    "made to round its products to {}, and audited without: solvers in its dtype, the reference flow in float64; the "
    "verdict is about the function that the weights define"
)
Change: TypeAlias = Callable[[Solver], Solver]
"""From a solve's own solver to the one to test it with."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One batch through a model."""

    outputs: Tensor
    """[n, ...], float64 on the CPU."""
    states: Tensor | None
    """[n, D], float64 on the CPU: where the last solve ended; None where a model hides it."""
    evaluations: int
    """Of the field, by all solves of the pass."""


@dataclass(frozen=True, kw_only=True)
class Insight:
    """The last solve of a model from inside: what evidence beyond predictions needs."""

    field: Callable[[Tensor, Tensor], Tensor]
    """field(t, z), in float64."""
    start: Tensor
    """[n, ...]: the states it starts from, in float64."""
    times: tuple[float, float]
    head: nn.Module | None
    """What comes after it, in float64, where that is known."""


class Subject(Protocol):
    """A model to be audited."""

    library: str
    """Where its solver comes from: `windermere`, `torchdiffeq`, ..."""
    solvers: tuple[Solver, ...]
    """What the solves of one pass were trained with, in their order; the last one decides sweeps."""
    notes: tuple[str, ...]
    """What a reader of the verdict must know, such as that a model can't run in float64."""

    def forward(self, x: Any, change: Change | None, *, double: bool = False) -> Pass:
        """A batch under the model's own solver (None) or a changed one; `double` asks for float64 throughout.

        Raises `DoublePrecisionError` where the model can't run in float64.
        """
        ...

    def insight(self, x: Any) -> Insight | None:
        """The last solve from inside, None where the model hides it."""
        ...


class ModelSubject:
    """Any module with ODEBlocks inside."""

    library = "windermere"

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.solvers = tuple(block.solver for block in ode_blocks(model))
        rounded = arithmetic_of(model)
        self.notes: tuple[str, ...] = () if rounded == "float32" else (UNROUNDED.format(rounded),)
        self._double: nn.Module | None = None
        self._insists = False

    def forward(self, x: Any, change: Change | None, *, double: bool = False) -> Pass:
        model = self._in_double() if double else self.model
        ends: list[Any] = []
        with self._noting_double(double), _watching(model) as model, ExitStack() as stack:
            if change is not None:
                stack.enter_context(using(model, change))
            stack.enter_context(_hooks(ode_blocks(model), lambda block, inputs, end: ends.append(end)))
            count = stack.enter_context(counting())
            outputs = model(_like(x, model))
        states = flat(ends[-1]) if isinstance(ends[-1], Tensor) else None
        return Pass(outputs=as_outputs(outputs), states=states, evaluations=int(np.max(count.checks)))

    def insight(self, x: Any) -> Insight | None:
        model = self._in_double()
        seen: list[tuple[ODEBlock, Any]] = []
        watch = _hooks(ode_blocks(model), lambda block, inputs, end: seen.append((block, inputs[0])))
        with self._noting_double(True), _watching(model) as model, watch:
            model(_like(x, model))
        block, start = seen[-1]
        if not isinstance(start, Tensor):
            return None
        times = (block.times[0], block.times[-1])
        return Insight(field=block.field, start=start, times=times, head=_after(model, block))

    def _in_double(self) -> nn.Module:
        if self._double is None:
            with self._noting_double(True):
                self._double = double_of(self.model)
        return self._double

    @contextmanager
    def _noting_double(self, double: bool) -> Iterator[None]:
        """A model that insists on float32 is noted, once."""
        try:
            with naming_double(type(self.model).__name__, double):
                yield
        except DoublePrecisionError as error:
            self.notes += () if self._insists else (str(error),)
            self._insists = True
            raise


class PredictSubject:
    """A callable predict(x, solver) from anywhere: no field, no states, and whatever precision it computes in."""

    library = "predict"

    def __init__(self, predict: Callable[[Any, Solver], Any], trained_with: Solver) -> None:
        self.predict = predict
        self.solvers: tuple[Solver, ...] = (trained_with,)
        self.notes: tuple[str, ...] = (
            "a bare predict shows no field: the reference is the finest solve it was asked for, in its own precision",
        )

    def forward(self, x: Any, change: Change | None, *, double: bool = False) -> Pass:
        if double:
            raise DoublePrecisionError("a bare predict computes in its own precision")
        own = self.solvers[0]
        with counting() as count, checking():
            outputs = self.predict(x, own if change is None else change(own))
        return Pass(outputs=as_outputs(outputs), states=None, evaluations=int(np.max(count.checks)))

    def insight(self, x: Any) -> Insight | None:
        return None


def as_outputs(outputs: Any) -> Tensor:
    """Torch, NumPy or JAX, as float64 on the CPU."""
    if isinstance(outputs, Tensor):
        return outputs.detach().double().cpu()
    return torch.as_tensor(np.array(outputs, dtype=np.float64))


def flat(states: Tensor) -> Tensor:
    """[n, ...] to [n, D], float64 on the CPU."""
    return states.detach().double().cpu().flatten(1)


@contextmanager
def _watching(model: nn.Module) -> Iterator[nn.Module]:
    """In eval mode (dropout off, running statistics), without gradients, in the dtype's own arithmetic, and every solve
    counts as a check."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad(), checking(), unrounded(model):
            yield model
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def _hooks(blocks: Sequence[ODEBlock], hook: Callable[[Any, Any, Any], None]) -> Iterator[None]:
    handles = [block.register_forward_hook(hook) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _like(x: Any, model: nn.Module) -> Any:
    """Inputs on the model's device and, where they are floating, in its dtype."""
    first = next(model.parameters(), None)
    x = torch.as_tensor(x) if isinstance(x, np.ndarray) else x
    if first is None or not isinstance(x, Tensor):
        return x
    return x.to(first.device, first.dtype if x.dtype.is_floating_point else x.dtype)


def _after(model: nn.Module, block: ODEBlock) -> nn.Module | None:
    """What follows the block, where the model is a sequence of layers."""
    if not isinstance(model, nn.Sequential) or not any(child is block for child in model):
        return None
    position = next(i for i, child in enumerate(model) if child is block)
    return model[position + 1 :]
