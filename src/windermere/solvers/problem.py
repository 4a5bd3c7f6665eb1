"""One solve as one object: what is asked for, and where a walk over time led."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.solvers.counting import Ledger, Role, Tally
from windermere.solvers.field import Field, Rate, Tensors
from windermere.solvers.grid import Grid, make_grid
from windermere.solvers.layout import Layout
from windermere.solvers.solver import Adaptive, FixedStep, OnGrid, Solver
from windermere.solvers.tableaus import Tableau
from windermere.solvers.times import Times

if TYPE_CHECKING:
    from windermere.solvers.gradients import Gradient
    from windermere.solvers.paths import FastPath

Piece: TypeAlias = Callable[..., Any]
Evaluations: TypeAlias = NDArray[np.int64]
"""How often each group evaluates the field."""
Remember: TypeAlias = Callable[[Piece, Evaluations], Piece]
Settle: TypeAlias = Callable[[float | Tensor, Tensor | None], None]
UNCOUNTED = Ledger((), False)


def plainly(piece: Piece, _: Evaluations) -> Piece:
    return piece


@dataclass(frozen=True, eq=False)
class Problem:
    """What a solve needs to know: the field, the state, the solvers, the times, and what is wanted of them."""

    field: Field
    """As it was given."""
    rate: Rate
    """The field of the packed state, as steps evaluate it."""
    tensors: Tensors | None
    """Gives what the rate depends on, as in `Prepared`."""
    z0: Tensor
    """The packed state at the first time."""
    layout: Layout
    solvers: tuple[Solver, ...]
    """A single one, or in an ensemble one for each member, all of one method and kind."""
    times: Times
    """The same for all samples; or one array [samples] for each time, where samples have times of their own."""
    gradient: "Gradient" = "backprop"
    """The one to solve for; "backprop" where no gradient is wanted at all."""
    record: bool = False
    """Whether every step is kept."""
    compile: bool = False
    """Whether the field is to be compiled by torch.compile where it is evaluated."""
    interpolate: bool = False
    """Whether times between the two ends are passed over, and their states interpolated."""
    captured: bool | None = None
    """Whether steps are to be captured and replayed (True, or an error says why not) or not (False); None where that is
    not said."""
    paths: "tuple[FastPath, ...]" = ()
    """The fast paths that may be asked to solve it in one piece."""
    ledger: Ledger = UNCOUNTED
    """The counts that were open when the solve began."""
    remember: Remember = plainly
    """How a piece of the solve is put on autograd's tape: as it is, or to be recomputed (checkpointing)."""
    reuse: bool = True
    """Whether a first stage may be taken over from the step before."""
    settle: Settle | None = None
    """Told after each step (its size by group, and which groups accepted it); the adjoint collects here."""

    @property
    def tableau(self) -> Tableau:
        return self.solvers[0].tableau

    @property
    def adaptive(self) -> tuple[Adaptive, ...]:
        """The solvers, if they choose their steps; else none."""
        return cast(Any, self.solvers) if isinstance(self.solvers[0], Adaptive) else ()

    @property
    def fixed(self) -> tuple[FixedStep | OnGrid, ...]:
        """The solvers, if their steps are fixed; else none."""
        return () if isinstance(self.solvers[0], Adaptive) else cast(Any, self.solvers)

    @cached_property
    def grid(self) -> Grid:
        """The grid that fixed steps walk: through all times, or from end to end where those between are passed over."""
        return make_grid(self.fixed, self.ends if self.interpolate else self.times)

    @property
    def ends(self) -> tuple[Any, Any]:
        return self.times[0], self.times[-1]

    @property
    def by_sample(self) -> bool:
        """Whether each sample has times of its own."""
        return isinstance(self.times[0], np.ndarray)

    @property
    def span(self) -> float:
        """The time from start to end, of the sample that has the longest."""
        start, end = self.ends
        return float(np.max(abs(end - start), initial=0.0)) if self.by_sample else abs(end - start)

    @property
    def is_plain(self) -> bool:
        """Whether one tensor is taken from a first time to a last, and nothing else is wanted on the way."""
        return len(self.times) == 2 and not (self.record or self.by_sample) and self.layout.parts is None

    def but(self, **changes: Any) -> "Problem":
        """The same with some changes. As `dataclasses.replace`, in a tenth of its time: each solve asks for it."""
        other, values = object.__new__(Problem), {**vars(self), **changes}
        for name in _FOUND:
            values.pop(name, None)
        if len(values) != len(_FIELDS):
            raise TypeError(f"a problem has no {', '.join(changes.keys() - _FIELDS)}")
        vars(other).update(values)
        return other

    def ungrouped(self) -> "Problem":
        """The same, where members share a grid and so are one group."""
        return self.but(layout=replace(self.layout, groups=()))

    def count(self, role: Role, evaluations: Evaluations) -> None:
        """Add to the counts that were open when the solve began."""
        if self.ledger.counts:
            self.ledger.add(role, self._by_member(evaluations))

    def _by_member(self, evaluations: Evaluations) -> Tally:
        """Evaluations by member; samples that step on their own share evaluations, so the slowest one tells."""
        if evaluations.ndim > self.layout.ensemble:
            evaluations = evaluations.max(axis=-1, initial=0)
        if len(self.solvers) == 1:
            return int(evaluations.item())
        return np.full(len(self.solvers), evaluations)


_FIELDS = frozenset(field.name for field in fields(Problem))
_FOUND = tuple(name for name, value in vars(Problem).items() if isinstance(value, cached_property))
"""What a problem finds out about itself, and another one anew."""


@dataclass(frozen=True, eq=False)
class Stacked(Sequence[Tensor]):
    """States that lie in one tensor, [times, ...]: to take them apart and put them together again takes a while."""

    whole: Tensor

    def __getitem__(self, k: Any) -> Any:
        return self.whole[k]

    def __len__(self) -> int:
        return len(self.whole)


@dataclass(frozen=True)
class Walked:
    """Where a walk over time led."""

    states: Sequence[Tensor]
    """At the times asked for, the first included."""
    evaluations: Evaluations
    accepted: NDArray[np.int64]
    rejected: NDArray[np.int64]
    recorded: list[tuple[NDArray[np.float64], Tensor]]
    """Time (by group) and state after every step, where that was asked for."""
    recomputed: Evaluations | None = None
    """How often a path's way back evaluates the field again, where that is not as often as the way there."""

    @property
    def stacked(self) -> Tensor:
        """The states, [times, ...]."""
        return self.states.whole if isinstance(self.states, Stacked) else torch.stack(list(self.states))

    @property
    def final(self) -> Tensor:
        """The last state, which shares no memory with the others."""
        return self.states[-1].clone() if isinstance(self.states, Stacked) else self.states[-1]

    @classmethod
    def adapted(cls, problem: Problem, states: Sequence[Tensor], costs: Sequence[NDArray[np.int64]]) -> "Walked":
        """An adaptive walk to each time, with its costs: evaluations, steps accepted and rejected, of all groups."""
        evaluations, accepted, rejected = (n.reshape(problem.layout.groups) for n in costs)
        return cls(states, evaluations, accepted, rejected, [])

    @classmethod
    def over_grid(
        cls,
        cost: int,
        taken: NDArray[np.int64],
        states: Sequence[Tensor],
        recorded: list[tuple[NDArray[np.float64], Tensor]] | None = None,
    ) -> "Walked":
        """A fixed grid's walk: every step is accepted, and each costs the same."""
        evaluations = np.asarray(cost * taken.item()) if taken.ndim == 0 else cost * taken  # numbers take less time
        return cls(states, evaluations, taken, np.zeros(taken.shape, np.int64), recorded or [])
