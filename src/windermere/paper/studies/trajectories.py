"""Sphere2 in its plane: trajectories of a coarse and of a fine solver (Figure 1).

Shapes: S steps, M members, N points in the plane, C classes.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.evidence.crossings import count_crossings
from windermere.paper.figures import TrajectoryPanel, draw_trajectories
from windermere.paper.stacked import StackedField
from windermere.paper.studies.critical import THRESHOLD
from windermere.paper.studies.measuring import scores
from windermere.paper.studies.rows import Floats, draw_both, state_rows, states_of, where
from windermere.paper.studies.study import MAIN, QUICK_SPHERES, SEEDS, Finding, Finished, Study, Tables
from windermere.paper.training import RunConfig, Trained, paper_settings
from windermere.records import Row
from windermere.report.frame import DecisionRegions, Frame
from windermere.solvers import FixedStep, Solver, solve

COARSE, FINE = FixedStep.of("euler", steps=2), FixedStep.of("euler", steps=128)
"""h = 1/2 is the paper's; of the small step it only says that it is small: ours is on the fine side of Table 1."""
TEST_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
DRAWN_POINTS, CROSSING_POINTS = 60, 200
ALMOST_EXACT = FixedStep("rk4", step=1 / 512)


# What both studies, and the demo, take from trained members.


def settings(solver: Solver, *, quick: bool) -> dict[str, Any]:
    return {**paper_settings("sphere2", solver), **(QUICK_SPHERES if quick else {})}


def config(solver: Solver, *, quick: bool) -> RunConfig:
    return RunConfig(data="sphere2", solver=solver, seeds=SEEDS, **settings(solver, quick=quick))


@torch.no_grad()
def walks(trained: Trained, inputs: Tensor, solvers: Sequence[Solver]) -> Floats:
    """Every member's states [S + 1, M, N, 2] as its solver walks."""
    solution = solve(*_in_double(trained, inputs), solvers, record=True)
    assert solution.trajectory is not None  # asked for
    return _on_host(solution.trajectory.states)


@torch.no_grad()
def flows(trained: Trained, inputs: Tensor, times: Sequence[float]) -> Floats:
    """Every member's states [len(times), M, N, 2] as its flow takes them."""
    solvers = (ALMOST_EXACT,) * trained.ensemble.size
    return _on_host(solve(*_in_double(trained, inputs), solvers, times).states)


def _on_host(states: Any) -> Floats:
    """Whatever device they were walked on."""
    return np.asarray(states.cpu(), dtype=np.float64)


def _in_double(trained: Trained, inputs: Tensor) -> tuple[StackedField, Tensor]:
    """Fields and states for all members: in float64, so that rounding makes no crossings."""
    ensemble = trained.ensemble.subset(range(trained.ensemble.size), torch.float64)
    return ensemble.first_solve(inputs.double().expand(ensemble.size, *inputs.shape))


def head_rows(trained: Trained, name: str) -> list[Row]:
    """The linear layer of every member: a row for each class."""
    tensors = trained.ensemble.tensors
    weights, biases = (tensors[f"2.{part}"].detach().double().tolist() for part in ("weight", "bias"))
    return [
        {"run": name, "seed": seed, "class": c, "weight_x": weight[0], "weight_y": weight[1], "bias": bias}
        for seed, rows, offsets in zip(trained.config.seeds, weights, biases, strict=True)
        for c, (weight, bias) in enumerate(zip(rows, offsets, strict=True))
    ]


def decisions(heads: Sequence[Row], points: Floats) -> Any:
    """What one member's head (its rows) says of points [..., 2]."""
    weights = np.array([[row["weight_x"], row["weight_y"]] for row in heads])
    return (points @ weights.T + np.array([row["bias"] for row in heads])).argmax(axis=-1)


def regions(heads: Sequence[Row], frame: Frame) -> DecisionRegions:
    xx, yy = frame.grid(400)
    return DecisionRegions(xx=xx, yy=yy, predicted=decisions(heads, np.stack([xx, yy], axis=-1)))


def accuracy_rows(run: Finished, test_steps: Sequence[int]) -> list[Row]:
    """A row for each number of test steps and seed."""
    trained, rows = run.trained, list[Row]()
    for count in test_steps:
        solvers = (FixedStep.of("euler", steps=count),) * trained.ensemble.size
        found = scores(trained.ensemble, solvers, run.test_set)
        for seed, solver, score in zip(trained.config.seeds, trained.solvers, found, strict=True):
            steps = round(1 / solver.precision)
            row = {"run": run.name, "seed": seed, "method": solver.method, "steps": steps}
            own = (solver.method, steps) == ("euler", count)
            accuracy = score.accuracy or 0.0  # one that fails classifies nothing
            rows.append({**row, "test_method": "euler", "test_steps": count, "own": own, "accuracy": accuracy})
    return rows


def scored_rows(tables: Tables) -> list[Row]:
    """The rows of the main table, without those of seeds that diverged."""
    return [row for row in tables.get(MAIN, ()) if row["accuracy"] is not None]


def rows_of_first_seed(rows: Sequence[Row]) -> list[Row]:
    """Seeds that were trained apart have trajectories or outputs of one each; the first's are draw_both."""
    return where(rows, seed=min(row["seed"] for row in rows))


def accuracies_of(rows: Sequence[Row], run: str, test_steps: int) -> list[float]:
    return [row["accuracy"] for row in where(rows, run=run, test_steps=test_steps)]


def own_steps(rows: Sequence[Row], run: str) -> int:
    return int(where(rows, run=run, own=True)[0]["test_steps"])


def mean_and_range(values: Sequence[float]) -> str:
    """A mean, and the least and the most."""
    several = (
        f" ({min(values):.3f} to {max(values):.3f} over {len(values)} seeds)" if len(values) > 1 else " (one seed)"
    )
    return f"{fmean(values):.3f}{several}"


# Figure 1.


def trajectory_runs(quick: bool) -> Mapping[str, RunConfig]:
    return {"fine": config(FINE, quick=quick), "coarse": config(COARSE, quick=quick)}


def measure_trajectories(run: Finished) -> Tables:
    seeds, (inputs, labels) = run.trained.config.seeds, (part[:CROSSING_POINTS] for part in run.test_set)
    own, classes = walks(run.trained, inputs, run.trained.solvers), labels.cpu().numpy()
    flow = flows(run.trained, inputs, np.linspace(0, 1, len(own)).tolist())
    crossings = [
        {"run": run.name, "seed": seed, **_crossings(own[:, m], flow[:, m], classes)} for m, seed in enumerate(seeds)
    ]
    path, path_labels = own[:, 0, :DRAWN_POINTS], classes[:DRAWN_POINTS]
    return {
        MAIN: accuracy_rows(run, TEST_STEPS),
        "trajectories": state_rows(path, path_labels, run=run.name, seed=seeds[0]),
        "heads": head_rows(run.trained, run.name),
        "crossings": crossings,
    }


def _crossings(own: Floats, flow: Floats, labels: Any) -> Row:
    """A row that counts the crossings of the solver's polygons, and of the flow's at the same nodes."""
    found = {name: count_crossings(states, labels) for name, states in (("own", own), ("flow", flow))}
    counts = {f"{name}_{kind}": n for name, count in found.items() for kind, n in vars(count).items()}
    return {"points": own.shape[1], **counts}


def draw_trajectory_study(tables: Tables, folder: Path) -> list[Path]:
    runs = [name for name in ("fine", "coarse") if where(scored_rows(tables), run=name)]
    panels = [_trajectory_panel(tables, name, letter) for letter, name in zip("ab", runs, strict=False)]
    return draw_both(partial(draw_trajectories, panels), folder, "trajectories") if panels else []


def _trajectory_panel(tables: Tables, run: str, letter: str) -> TrajectoryPanel:
    path, rows = rows_of_first_seed(where(tables["trajectories"], run=run)), where(scored_rows(tables), run=run)
    seed, (states, labels) = path[0]["seed"], states_of(path)
    seeds = sorted({row["seed"] for row in rows}, key=lambda other: (other != seed, other))
    tests = sorted({row["test_steps"] for row in rows})
    steps = own_steps(rows, run)
    return TrajectoryPanel(
        title=f"({letter}) trained with {steps} Euler steps, h = 1/{steps}",
        states=states,
        labels=labels,
        test_steps=np.array(tests),
        accuracy=np.array([[where(rows, seed=s, test_steps=n)[0]["accuracy"] for n in tests] for s in seeds]),
        trained_steps=steps,
        decision=regions(where(tables["heads"], run=run, seed=seed), Frame.around_most(states)),
    )


def trajectory_findings(tables: Tables) -> list[Finding]:
    table = scored_rows(tables)
    if {row["run"] for row in table} != {"fine", "coarse"}:
        return []
    crossings = tables["crossings"]
    steps = {run: own_steps(table, run) for run in ("fine", "coarse")}
    own = {run: accuracies_of(table, run, count) for run, count in steps.items()}
    drops = {run: _drops(table, run) for run in own}
    own_count, flow_count = (
        {run: [row[f"{whose}_between_classes"] for row in where(crossings, run=run)] for run in own}
        for whose in ("own", "flow")
    )
    points = crossings[0]["points"]
    return [
        Finding(
            claim="Trained with a small step or with a large one, the accuracy is very high.",
            ours=f"{mean_and_range(own['fine'])} with {steps['fine']} steps, "
            f"{mean_and_range(own['coarse'])} with {steps['coarse']}",
            agrees=min(map(fmean, own.values())) > 0.95,
        ),
        Finding(
            claim="The model of the small step keeps its accuracy under smaller ones.",
            ours=f"with more than {steps['fine']} steps it loses {mean_and_range(drops['fine'])} at most, "
            f"and more than {THRESHOLD} in {sum(drop > THRESHOLD for drop in drops['fine'])} of "
            f"{len(drops['fine'])} seeds",
            agrees=_all_or_none([drop <= THRESHOLD for drop in drops["fine"]]),
        ),
        Finding(
            claim="The model of the large step drops significantly under smaller ones.",
            ours=f"with more than {steps['coarse']} steps it loses {mean_and_range(drops['coarse'])} at most",
            agrees=_all_or_none([drop > THRESHOLD for drop in drops["coarse"]]),
        ),
        Finding(
            claim="With the large step, trajectories of different classes cross.",
            ours=f"they do, {_listed(own_count['coarse'])} times by seed among {points} test points; but so does the "
            f"flow as seen at the same nodes ({_listed(flow_count['coarse'])}), and {steps['fine']} steps "
            f"({_listed(own_count['fine'])}, the flow {_listed(flow_count['fine'])}): chords cross where a solution "
            "does not, so counts alone tell little",
            agrees=_all_or_none([a > b for a, b in zip(own_count["coarse"], flow_count["coarse"], strict=True)]),
        ),
    ]


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))


def _all_or_none(holds: Sequence[bool]) -> bool | None:
    """Whether a claim holds for every seed or for none; None where it holds for some seeds and not for others."""
    return all(holds) if len(set(holds)) == 1 else None


def _drops(rows: Sequence[Row], run: str) -> list[float]:
    """The most accuracy that each seed loses with more steps than it was trained with."""
    drops = []
    for own in where(rows, run=run, own=True):
        finer = [row for row in where(rows, run=run, seed=own["seed"]) if row["test_steps"] > own["steps"]]
        drops.append(max(own["accuracy"] - row["accuracy"] for row in finer))
    return drops


TRAJECTORIES = Study(
    name="trajectories",
    paper="Figure 1",
    what="Sphere2 trained with a small and with a large step: both are accurate, one of them with its own step only",
    runs=trajectory_runs,
    measure=measure_trajectories,
    draw=draw_trajectory_study,
    findings=trajectory_findings,
)
