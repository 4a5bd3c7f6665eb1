"""A training under Algorithm 2, and two others that leave it at each check that fails, from the same weights.

One of the two goes on with half the step, as Algorithm 2 does; the other is a control, with the step that failed. Both
see the same batches, beginning with that of the check, until the next review is due.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from windermere.adaptation import StepAdaptation
from windermere.adaptation.controller import Decision
from windermere.adaptation.step_size import check_solver
from windermere.errors import UsageError
from windermere.paper.studies.measuring import SPAN, scores, steps_at
from windermere.paper.studies.rows import RunRow
from windermere.paper.training import Ensemble, Labelled, RunConfig
from windermere.paper.training.checkpoint import of_members, pack, unpack
from windermere.paper.training.iteration import one_iteration
from windermere.paper.training.loop import set_up
from windermere.paper.training.trainer import Training
from windermere.records import RunFolder, environment
from windermere.solvers import FixedStep, Solver

FLOW = FixedStep("rk4", step=1 / 256)
"""Stands for the flow."""
BEFORE, SMALLER, SAME = "check", "smaller", "same"
"""The moments of a fork: at the failing check, and at the end of training with half the step, or with the same."""


@dataclass(frozen=True, kw_only=True)
class ForkRow(RunRow):
    """Test accuracies of one seed's model at one moment of a fork."""

    iteration: int
    """When the check failed."""
    moment: str
    steps: int
    """With the step that failed."""
    steps_after: int
    """With half of it."""
    own: float
    """The test accuracy with the step that failed."""
    halved: float
    """With half of it."""
    midpoint: float
    """By midpoint with the step of Algorithm 2's check, at the step that the moment is trained with."""
    rk4: float
    """Likewise by rk4."""
    flow: float


@dataclass(frozen=True, kw_only=True)
class WayRow(RunRow):
    """One review of one seed: how many steps it was trained with, and its test accuracy with these."""

    iteration: int
    steps: int
    accuracy: float
    failed: bool
    """Whether the check failed, and the step became smaller."""


@dataclass(frozen=True)
class Followed:
    """What was found at one review."""

    way: list[WayRow]
    forks: list[ForkRow]


def follow(
    run: str, config: RunConfig, training_set: Labelled, test_set: Labelled, share: Callable[[float], None]
) -> Iterator[Followed]:
    """Trains as Algorithm 2 does, on the data and the device of the config, and stops at every review."""
    if not isinstance(rule := config.controller, StepAdaptation):
        raise UsageError("forks leave a training under Algorithm 2: give a config with a StepAdaptation")
    with (
        TemporaryDirectory() as place,
        set_up(config, training_set[0]),
        _training(config, training_set, test_set, Path(place) / "trained") as training,
    ):
        while training.iteration < config.iterations:
            training.use_decided()
            due = (training.iteration + 1) % rule.every == 0
            before = _copied(training) if due else {}
            used = training.solvers
            one_iteration(training)
            if due:
                share(training.iteration / config.iterations)
                way = list(_way(run, training, used))
                forks = (_fork(run, training, row.seed, before, rule, Path(place)) for row in way if row.failed)
                yield Followed(way, [row for fork in forks for row in fork])


@contextmanager
def _training(config: RunConfig, training_set: Labelled, test_set: Labelled, path: Path) -> Iterator[Training]:
    with RunFolder.create(path, config.to_dict(), environment(config.device)) as run:
        yield Training(config, training_set, test_set, run)


def _copied(training: Training) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in pack(training.ensemble, training.optimizer).items()}


def _decision(training: Training, seed: int) -> Decision:
    """What the review in the iteration that has just ended decided."""
    decided = None if training.adapting is None else training.adapting.decided
    assert decided is not None  # a review was due
    found = decided[training.config.seeds.index(seed)].decision
    assert found is not None
    return found


def _way(run: str, training: Training, used: Sequence[Solver]) -> Iterator[WayRow]:
    found = scores(training.ensemble, used, training.test_set)
    for seed, score in zip(training.config.seeds, found, strict=True):
        decision = _decision(training, seed)
        yield WayRow(
            run=run,
            seed=seed,
            iteration=training.iteration,
            steps=steps_at(decision.before),
            accuracy=score.accuracy or 0.0,
            failed=decision.after < decision.before,
        )


def _fork(
    run: str, training: Training, seed: int, before: Mapping[str, Tensor], rule: StepAdaptation, place: Path
) -> Iterator[ForkRow]:
    """Both ways from the state before the iteration of a check, and that state itself."""
    decision, member, at = _decision(training, seed), training.config.seeds.index(seed), training.iteration
    for moment, step in ((BEFORE, decision.before), (SMALLER, decision.after), (SAME, decision.before)):
        solver = FixedStep(rule.train, step=step)
        alone = replace(training.config, seeds=(seed,), solver=solver, controller=None, first_step="given")
        with _training(alone, training.training_set, training.test_set, place / f"{moment}-{seed}-{at}") as fork:
            unpack(of_members(before, [member]), fork.ensemble, fork.optimizer)
            fork.iteration = at - 1
            while moment != BEFORE and fork.iteration < at - 1 + rule.every:
                one_iteration(fork)
        yield ForkRow(
            run=run,
            seed=seed,
            iteration=at,
            moment=moment,
            steps=steps_at(decision.before),
            steps_after=steps_at(decision.after),
            **_accuracies(fork.ensemble, solver, decision, fork.test_set),
        )


def _accuracies(one: Ensemble, solver: FixedStep, decision: Decision, test_set: Labelled) -> dict[str, float]:
    """A solve that fails classifies nothing."""
    tried: dict[str, Solver] = {
        "own": solver.with_precision(decision.before),
        "halved": solver.with_precision(decision.after),
        "midpoint": check_solver(solver.method, "midpoint", solver.step, SPAN),
        "rk4": check_solver(solver.method, "rk4", solver.step, SPAN),
        "flow": FLOW,
    }
    return {name: scores(one, [other], test_set)[0].accuracy or 0.0 for name, other in tried.items()}
