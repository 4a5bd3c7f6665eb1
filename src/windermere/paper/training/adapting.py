"""Precision adapted while an ensemble trains: every member has its own, each round of a review is one batched solve.

Shapes: S members, B samples.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.adaptation import Controller, ControllerState, Score, moved_mass, review_members
from windermere.adaptation.score import FAILED
from windermere.errors import SolverError, ToleranceError
from windermere.paper.training.config import RunConfig
from windermere.paper.training.ensemble import Ensemble
from windermere.paper.training.evaluation import correct
from windermere.solvers import Solver, checking, counting, initial_step


class Adapting:
    """Where every member's controller is. What a review decides is held until the next iteration begins."""

    def __init__(self, controller: Controller, states: Sequence[ControllerState]) -> None:
        self.controller, self.states = controller, list(states)
        self.decided: list[ControllerState] | None = None
        """For the next iteration, where this one was reviewed."""

    @classmethod
    def begin(cls, config: RunConfig, ensemble: Ensemble, x: Tensor) -> "Adapting | None":
        """At the solver's own precision, or at Hairer's first step for each member on its first batch."""
        controller = config.controller
        if controller is None:
            return None
        first = np.full(ensemble.size, config.solver.precision)
        if config.first_step == "initial":
            field, z0 = ensemble.first_solve(x)
            first = initial_step(field, z0, order=config.solver.order, members=ensemble.size)
        return cls(controller, [controller.start(float(precision)) for precision in first])

    @property
    def solvers(self) -> tuple[Solver, ...]:
        return tuple(self.controller.solver(state) for state in self.states)

    def use_decided(self) -> None:
        """An iteration begins: train with what the review in the one before has decided."""
        self.states, self.decided = self.decided or self.states, None

    def to_dict(self) -> dict[str, Any]:
        kept = {"states": self.states, "decided": self.decided}
        return {name: None if states is None else [s.to_dict() for s in states] for name, states in kept.items()}

    def go_on_from(self, saved: Mapping[str, Any], members: Sequence[int]) -> None:
        """Take over what `to_dict` gave, of these members."""
        self.states = [ControllerState.from_dict(saved["states"][s]) for s in members]
        self.decided = saved["decided"] and [ControllerState.from_dict(saved["decided"][s]) for s in members]

    def due(self, iteration: int) -> bool:
        return iteration % self.controller.every == 0

    def review(
        self, ensemble: Ensemble, x: Tensor, y: Tensor, logits: Tensor, trained: Sequence[Score]
    ) -> NDArray[np.int64]:
        """Review all members on the current batch [S, B, ...]; returns the checks' evaluations, by member."""
        spent = np.zeros(ensemble.size, np.int64)

        def score(wanted: dict[int, Solver]) -> dict[int, Score]:
            answers = {
                s: answer for group in _alike(wanted) for s, answer in _answers(ensemble, x, y, logits, group).items()
            }
            for s, answer in answers.items():
                spent[s] += answer.evaluations
            return answers

        self.decided = review_members(self.controller, self.states, trained, score)
        return spent

    def decisions(self) -> list[dict[str, Any]]:
        """What this iteration's review has decided, as rows for the metrics."""
        return [vars(state.decision) for state in self.decided or () if state.decision is not None]


def _alike(wanted: dict[int, Solver]) -> list[dict[int, Solver]]:
    """Requests that one batched solve can answer: of one kind and method."""
    groups: dict[tuple[type, str], dict[int, Solver]] = defaultdict(dict)
    for s, solver in wanted.items():
        groups[type(solver), solver.method][s] = solver
    return list(groups.values())


def _answers(ensemble: Ensemble, x: Tensor, y: Tensor, logits: Tensor, wanted: dict[int, Solver]) -> dict[int, Score]:
    """The wanted solvers on the batch; `logits` are the training solver's. What cannot be solved is FAILED, and has
    cost what it had cost until then; that others in its company have to be solved again costs them nothing."""
    members, solvers = list(wanted), list(wanted.values())
    batch = x[members], y[members], logits[members]
    try:
        with counting() as count:
            found = _resolved(ensemble, members, *batch, solvers)
    except SolverError:
        if len(members) == 1:
            return {members[0]: replace(FAILED, evaluations=int(count.checks))}
        alone = (_answers(ensemble, x, y, logits, {s: wanted[s]}) for s in members)
        return {s: score for answer in alone for s, score in answer.items()}
    return dict(zip(members, found, strict=True))


def _resolved(
    ensemble: Ensemble, members: Sequence[int], x: Tensor, y: Tensor, trained: Tensor, solvers: Sequence[Solver]
) -> list[Score]:
    """In float64 where a check asks for more than float32 resolves."""
    try:
        return _scored(ensemble.subset(members), x, y, trained, solvers)
    except ToleranceError:
        return _scored(ensemble.subset(members, torch.float64), x.double(), y, trained, solvers)


@torch.no_grad()
def _scored(ensemble: Ensemble, x: Tensor, y: Tensor, trained: Tensor, solvers: Sequence[Solver]) -> list[Score]:
    with counting() as count, checking():
        logits = ensemble(x, solvers)
    return scores(logits, y, trained, count.checks, count.longest)


def scores(logits: Tensor, y: Tensor, trained: Tensor, evaluations: Any, steps: Any) -> list[Score]:
    """Every member's accuracy on the batch, how far it is from the training solver, and what its solve took."""
    accuracy = (correct(logits, y).double() / y.shape[1]).tolist()
    took = [np.broadcast_to(numbers, len(accuracy)).tolist() for numbers in (evaluations, steps)]
    moved = moved_mass(trained, logits, members=True).tolist() if y.shape[1] > 1 else [None] * len(accuracy)
    members = zip(accuracy, moved, *took, strict=True)
    return [Score(value=a, distance=d, evaluations=e, steps=n) for a, d, e, n in members]
