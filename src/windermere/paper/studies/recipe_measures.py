"""What a trained recipe contributes: what it cost, the audit of each seed, and numbers that might have predicted it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import windermere as wm
from windermere.paper import data
from windermere.paper.studies.recipe_runs import family_of
from windermere.paper.studies.rows import MAIN, RunRow, Table, Tables, five_digits, five_digits_or_none
from windermere.paper.studies.study import Finished
from windermere.paper.training import Labelled, RunConfig, Trained, leave_behind, open_run, train, trained_ensemble
from windermere.records import copy_run, read_metrics, sparse

STOPPED = "-stopped"
"""How a recipe's name ends that goes on until its check has passed."""
MOST_ROUNDS = 40
"""Reviews that a seed is waited for to pass."""


@dataclass(frozen=True, kw_only=True)
class RecipeRow(RunRow):
    """One seed of a recipe."""

    recipe: str
    """The run's name; other recipes may come from the same run."""
    method: str
    steps: float | None = None
    """How many the model's own solver takes in the end; none where they are adaptive."""
    iterations: int
    cost: float | None = None
    """Forward evaluations per iteration, those of all checks included."""
    outcome: str | None = None
    """The audit's."""
    accuracy: float | None
    flow_accuracy: float | None = None
    gap_low: float | None = None
    """The 95% interval of what the flow loses."""
    gap_high: float | None = None
    step_bound: float | None = None
    """h L, with the largest L along trajectories."""
    leading_term: float | None = None
    """The solver's leading error term relative to the field, in the median: of Euler, |h/2 f'f| / |f|."""
    safe_share: float | None = None
    """Decisions whose margin is larger than the solver's error."""
    diverged_at: int | None = sparse()

    @property
    def family(self) -> str:
        return family_of(self.recipe)


RECIPES = Table(MAIN, RecipeRow)


def measure(run: Finished) -> Tables:
    rows = list(audited(run.name, run.name, run.trained, run.test_set, costs(run.folder)))
    if run.name.startswith("algorithm-2"):
        for trained, spent in until_passed(run):
            rows += audited(run.name, run.name + STOPPED, trained, run.test_set, spent)
    return Tables({RECIPES: rows})


def untested_row(run: str, config: RunConfig, seed: int) -> RecipeRow:
    iterations, method = config.iterations, config.solver.method
    return RecipeRow(run=run, recipe=run, seed=seed, method=method, iterations=iterations, accuracy=None)


def audited(
    run: str, recipe: str, trained: Trained, test_set: Labelled, costs: dict[int, float]
) -> Iterator[RecipeRow]:
    """A row for each of its seeds."""
    for s, seed in enumerate(trained.config.seeds):
        solver, verdict = trained.solvers[s], wm.audit(trained.member(s), test_set)
        seen = {one.name: one.numbers for one in verdict.evidence}
        yield RecipeRow(
            run=run,
            recipe=recipe,
            seed=seed,
            method=solver.method,
            steps=None if isinstance(solver, wm.Adaptive) else five_digits(1 / solver.precision),
            iterations=trained.config.iterations,
            cost=five_digits(costs[seed]),
            outcome=str(verdict.outcome),
            accuracy=verdict.own.metric,
            flow_accuracy=verdict.reference.metric,
            gap_low=None if verdict.gap is None else five_digits(verdict.gap.low),
            gap_high=None if verdict.gap is None else five_digits(verdict.gap.high),
            step_bound=five_digits_or_none(seen.get("h L", {}).get("largest_hL")),
            leading_term=five_digits_or_none(seen.get("modified equation", {}).get("median")),
            safe_share=seen.get("margins", {}).get("safe"),
        )


def costs(folder: Path) -> dict[int, float]:
    """Forward evaluations and those of checks per iteration, by seed."""
    rows = [row for row in read_metrics(folder) if "evaluations_forward" in row]
    last = {row["seed"]: row for row in rows}
    return {s: (row["evaluations_forward"] + row["evaluations_checks"]) / row["iteration"] for s, row in last.items()}


# ---------------------------------------------------------------------------------------------------------
# Algorithm 2, stopped after a check that has passed


def until_passed(run: Finished) -> Iterator[tuple[Trained, dict[int, float]]]:
    """The run's seeds once their last check has passed, with their costs: where it has not, they train on, from one
    review to the next. Those that have never passed come last, as they are then."""
    config = run.trained.config
    every, training_set = _every(config), data.load(config.data, seed=config.data_seed).train
    with TemporaryDirectory() as place:
        folder = Path(place) / "run"
        copy_run(run.folder, folder)
        trained, waiting = run.trained, config.seeds
        for rounds in range(MOST_ROUNDS + 1):
            failed = _failed(folder, trained.config)
            done = [seed for seed in waiting if seed not in failed] if rounds < MOST_ROUNDS else list(waiting)
            if done:
                yield _some(trained, done, config.iterations), costs(folder)
            if not (waiting := tuple(seed for seed in waiting if seed not in done)):
                return
            leave_behind(folder, [seed for seed in trained.config.seeds if seed not in waiting])
            longer = replace(trained.config, seeds=waiting, iterations=trained.config.iterations + every)
            with open_run(folder, longer, resume=True) as opened:
                train(longer, training_set, run.test_set, opened)
            trained = trained_ensemble(folder)


def _every(config: RunConfig) -> int:
    return 1 if config.controller is None else config.controller.every


def _failed(folder: Path, config: RunConfig) -> set[int]:
    """Seeds whose last check scored further away than the threshold."""
    threshold = getattr(config.controller, "threshold", 0.0)
    last = {row["seed"]: row for row in read_metrics(folder) if "before" in row}
    return {seed for seed, row in last.items() if not abs(row["trained"] - row["checked"]) <= threshold}


def _some(trained: Trained, seeds: Sequence[int], iterations: int) -> Trained:
    """Some seeds of it, told as of a training of so many iterations."""
    places = [trained.config.seeds.index(seed) for seed in seeds]
    config = replace(trained.config, seeds=tuple(seeds), iterations=iterations)
    return Trained(config, trained.ensemble.subset(places), tuple(trained.solvers[s] for s in places))
