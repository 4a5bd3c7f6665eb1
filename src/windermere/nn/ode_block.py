"""`ODEBlock`, a layer that solves an ODE, and `using`, which swaps its solver for a while."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from torch import Tensor, nn

from windermere._torch_private import is_dynamo_compiling, uncompiled
from windermere.errors import UsageError
from windermere.solvers import Gradient, OnGrid, Solver, State, final_state, solve
from windermere.solvers.gradients import check_gradient
from windermere.solvers.grid import make_grid
from windermere.solvers.members import members_of
from windermere.solvers.solver import default_times
from windermere.solvers.times import check_times

Change: TypeAlias = Callable[[Solver], Solver]
"""From the solver that a block would take to the one that it takes."""


@dataclass(eq=False)
class _Scope:
    """One `with using(...)`."""

    solvers: Mapping[int, tuple[nn.Module, Solver]]
    """Each block and its solver, by the block's id; the block is held here so that no other object can get that id."""
    is_open: bool = True


_scopes: ContextVar[tuple[_Scope, ...]] = ContextVar("scopes of `using`, the innermost last", default=())
"""A context variable is one thread's (or task's): what others solve with is never changed. Scopes of generators may be
left in any order, and even in another thread: so each is closed by itself, wherever it is still listed."""
_changes: ContextVar[Mapping[int, tuple[nn.Module, Change]]] = ContextVar(
    "who changes which block's solver", default=MappingProxyType({})
)


class ODEBlock(nn.Module):
    """A layer that solves dz/dt = field(t, z): it takes a state to the state at the last time.

    `field`, `solver`, `times`, `gradient`, `interpolate`, `compile` and `captured` are as for `solve`. With more than
    two `times`, the layer returns the states at all of them, stacked along a first axis. The solver can be changed:
    assign `block.solver`, or see `using`. It is bound at the forward pass, so a backward pass that comes later uses the
    same.

    >>> import torch
    >>> import windermere as wm
    >>> field = wm.Autonomous(torch.nn.Linear(2, 2))
    >>> model = torch.nn.Sequential(wm.ODEBlock(field, wm.FixedStep("euler", step=1 / 64)), torch.nn.Linear(2, 3))
    >>> model(torch.ones(5, 2)).shape
    torch.Size([5, 3])
    """

    interpolate: bool | None = False
    """The value for blocks that were pickled before this could be chosen: their steps landed on every time."""
    compiles: bool = False
    """Likewise."""
    captured: bool | None = None
    """Likewise."""

    def __init__(
        self,
        field: nn.Module,
        solver: Solver,
        *,
        times: Sequence[float] | None = None,
        gradient: Gradient = "backprop",
        interpolate: bool | None = None,
        compile: bool = False,
        captured: bool | None = None,
    ) -> None:
        super().__init__()
        self.field = field
        self.solver = solver
        self.times = check_times(times if times is not None else default_times(solver))
        self.gradient, self.interpolate, self.compiles, self.captured = gradient, interpolate, compile, captured
        check_gradient(gradient)
        if isinstance(solver, OnGrid):
            make_grid(
                [solver], (self.times[0], self.times[-1]) if interpolate else self.times
            )  # times that are not on it fail here, not at the first solve

    @property
    def solver(self) -> Solver:
        """What it solves with here and now: its own solver, or the one of a `using` around."""
        change, its = _change_of(self), solver_before_changes(self)
        return its if change is None else change(its)

    @solver.setter
    def solver(self, solver: Solver) -> None:
        self.__dict__["solver"] = _checked(solver)

    if TYPE_CHECKING:  # of which nn.Module says nothing

        @overload
        def __call__(self, z: Tensor) -> Tensor: ...
        @overload
        def __call__(self, z: tuple[Tensor, ...]) -> tuple[Tensor, ...]: ...
        def __call__(self, z: Any) -> Any: ...

    def forward(self, z: State) -> State:
        """The state at the last time; with more than two times those at all, [len(times), ...]."""
        solver = self.solver  # once: what runs later, perhaps in another thread, must not look again
        asked: Any = {"gradient": self.gradient, "compile": self.compiles, "captured": self.captured}
        if len(self.times) == 2:
            return final_state(self.field, z, solver, self.times, **asked)
        return solve(self.field, z, solver, self.times, **asked, interpolate=self.interpolate).states

    def posed(self, z: State) -> tuple[Callable[..., Any], State]:
        """The field that a call with these arguments solves, and the state that it starts from."""
        return self.field, z

    def extra_repr(self) -> str:
        shown = f"solver=({self.solver}), times={self.times}, gradient={self.gradient}"
        shown += "" if self.interpolate is None else f", interpolate={self.interpolate}"
        return shown if self.captured is None else f"{shown}, captured={self.captured}"


def _checked(solver: Any) -> Any:
    """A solver, or an ensemble's; a name or anything else fails here, not at the first solve."""
    members_of(solver)
    return solver


class Autonomous(nn.Module):
    """A field from a network that takes no time: field(t, z) = network(z). See `ODEBlock` for an example.

    On a CPU, a network of linear layers and activations is solved in C where there is a compiler, as are most
    fields.

    >>> import torch
    >>> import windermere as wm
    >>> wm.Autonomous(torch.nn.ReLU())(0.5, torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, t: Tensor, z: Tensor) -> Any:
        """network(z), whatever the time."""
        return self.network(z)


def ode_blocks(model: nn.Module) -> list[ODEBlock]:
    """All ODEBlocks inside a model; a model without one is an error."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"ODEBlocks are looked for in a torch.nn.Module, not in a {type(model).__name__}")
    blocks = [module for module in model.modules() if isinstance(module, ODEBlock)]
    if not blocks:
        raise UsageError(f"this {type(model).__name__} has no ODEBlock inside: wrap its field in windermere.ODEBlock")
    return blocks


@contextmanager
def using(model: nn.Module, solver: Solver | Callable[[Solver], Solver]) -> Iterator[nn.Module]:
    """Within `with using(model, solver):`, every ODEBlock in the model solves with this solver.

    `solver` may also be a function from a block's own solver to another, where blocks differ. Afterwards every block
    has its own solver back, also after an error. Only the thread (or asyncio task) that opened the scope sees it: the
    others go on with theirs, and so do threads that the model itself starts, such as DataParallel's.

    >>> import torch
    >>> import windermere as wm
    >>> block = wm.ODEBlock(wm.Autonomous(torch.nn.Linear(2, 2)), wm.FixedStep("euler", step=1 / 8))
    >>> with wm.using(block, lambda own: own.with_precision(own.precision / 2)):
    ...     print(block.solver)
    euler, h = 1/16
    """
    blocks = ode_blocks(model)
    its = map(solver_before_changes, blocks)
    asked = [solver(own) if callable(solver) and not isinstance(solver, type) else solver for own in its]
    swapped = {id(block): (block, _checked(s)) for block, s in zip(blocks, asked, strict=True)}
    scope = _Scope(swapped)
    _scopes.set((*_open_scopes(), scope))
    try:
        yield model
    finally:
        scope.is_open = False
        _scopes.set(_open_scopes())


def _open_scopes() -> tuple[_Scope, ...]:
    return tuple(scope for scope in _scopes.get() if scope.is_open)


def _swap_of(block: nn.Module) -> Solver | None:
    if is_dynamo_compiling():  # compiled code would keep the answer of its first pass
        return uncompiled(_swap_of)(block)
    found = (scope.solvers[id(block)][1] for scope in reversed(_open_scopes()) if id(block) in scope.solvers)
    return next(found, None)


def is_swapped(block: nn.Module) -> bool:
    """Whether a `using` around, in this very thread, gives this very block another solver."""
    return _swap_of(block) is not None


def solver_before_changes(block: ODEBlock) -> Solver:
    """What it would solve with here if nothing around were `changing` it."""
    swapped = _swap_of(block)
    own: Solver = block.__dict__["solver"]
    return own if swapped is None else swapped


@contextmanager
def changing(model: nn.Module, change: Change) -> Iterator[None]:
    """Within it, every ODEBlock in the model solves with the changed solver, whichever it would take: also where the
    model itself chooses one on the way, by `using` or by assigning it. In this thread alone, as `using`."""
    token = _changes.set({id(block): (block, change) for block in ode_blocks(model)})
    try:
        yield
    finally:
        _changes.reset(token)


def _change_of(block: nn.Module) -> Change | None:
    if is_dynamo_compiling():
        return uncompiled(_change_of)(block)
    _, change = _changes.get().get(id(block), (None, None))
    return change


def is_changed(block: nn.Module) -> bool:
    """Whether something around is `changing` its solver, in this very thread."""
    return _change_of(block) is not None
