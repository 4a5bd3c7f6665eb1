"""The demo, Figure 1's story: too few steps give a model that leans on its solver, adapted ones give a flow."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from windermere.auditing import Outcome, Verdict, audit
from windermere.auditing.saving import record_of, save_records
from windermere.errors import RunError
from windermere.paper import data
from windermere.paper.figures.trajectory_figure import TrajectoryPanel, draw_trajectories
from windermere.paper.studies.folder import refuse_other_files
from windermere.paper.studies.plane import COARSE, TEST_STEPS, config, head_rows, seen, walks
from windermere.paper.training import (
    Labelled,
    Report,
    RunConfig,
    Trained,
    evaluate,
    make_controller,
    open_run,
    stop_sign,
    train,
    trained_ensemble,
)
from windermere.records import refuse_unless_file, storing
from windermere.report.words import share_words
from windermere.solvers import FixedStep, Solver

WORDS = {
    Outcome.FLOW: "a flow",
    Outcome.TIED: "tied to its solver",
    Outcome.COARSE: "a flow whose solver is too coarse",
    Outcome.UNDECIDED: "undecided",
}
POINTS = 150
TITLE = "Two models, one task: which one is really an ODE?"

Progress = Callable[[str, int, str], AbstractContextManager[Callable[[Report], None]]]


@dataclass(frozen=True, kw_only=True)
class AuditedModel:
    """One model and its audit."""

    run: Path
    verdict: Verdict
    figure: Path
    """The audit's."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    entries: list[AuditedModel]
    figure: Path
    page: Path
    """Both audits to look at and to play with, in a browser."""


class Stopped(RunError):
    """A demo that was told to stop while it trained."""

    def __init__(self, reason: str, iteration: int) -> None:
        super().__init__(f"the demo was {reason}: run it again to go on from iteration {iteration}")
        self.reason = reason


def configs() -> dict[str, RunConfig]:
    """Sphere2 as in the paper, but for a tenfold learning rate and fewer iterations, to be quick: once with two steps,
    and once with no choice of step at all.

    Seed 0 is chosen for the picture: at this learning rate the adapted seeds 0 to 3 all are flows, but some get 95 %
    right only, and which ones hangs on the last bits of the arithmetic.
    """
    coarse = replace(config(COARSE, quick=True), seeds=(0,))
    steady = make_controller("steady", coarse.solver, target=0.02)
    return {"coarse": coarse, "adapted": replace(coarse, controller=steady, first_step="initial")}


def run(out: Path, *, progress: Progress, date: str | None = None) -> Demo:
    """Train both models (or take them from an earlier demo), audit them, draw them, and make a page of it all."""
    wanted_runs, figure, page = configs(), out / "trajectories.png", out / "index.html"
    with storing(out, "read"):
        refuse_other_files(out, (*wanted_runs, figure.name, page.name))
    for file in (figure, page):
        refuse_unless_file(file, "written")  # before any training
    loaded = data.load("sphere2")
    entries, panels, records = [], [], []
    for name, wanted in wanted_runs.items():
        trained = _trained(out / name, name, wanted, loaded, progress)
        verdict = audit(trained.member(0), loaded.test)
        entry = AuditedModel(run=out / name, verdict=verdict, figure=out / name / "audit.png")
        verdict.plot(entry.figure)
        entries.append(entry)
        panels.append(_panel(trained, loaded.test, verdict))
        about = {"model": f"the demo's {name} model", "data": f"{wanted.data}, test set", "seed": wanted.seeds[0]}
        records.append(record_of(verdict, name=_name(trained), about=about, date=date))
    draw_trajectories(panels, figure)
    save_records(records, page, title=TITLE, lead=_lead([entry.verdict for entry in entries]))
    return Demo(entries=entries, figure=figure, page=page)


def _name(trained: Trained) -> str:
    """What the page calls a model: how it was trained."""
    steps = len(walks(trained, torch.zeros(1, 2), trained.solvers)) - 1
    adapted = trained.config.controller is not None
    return f"Trained with adapted steps ({steps})" if adapted else f"Trained with {steps} Euler steps"


def _lead(verdicts: Sequence[Verdict]) -> str:
    """The page's story in numbers."""
    own, flow = (
        " and ".join(share_words(score) for score in scores)
        for scores in zip(*((each.own.metric, each.reference.metric) for each in verdicts), strict=True)
    )
    return (
        f"With the solver that each was trained with, they get {own} of the points right. "
        f"Solved exactly, the same weights get {flow}. Drag the step and watch."
    )


def _trained(path: Path, name: str, config: RunConfig, loaded: data.DataSet, progress: Progress) -> Trained:
    """An interrupted demo goes on where it was; a finished one is not trained again."""
    exists = (path / "config.json").exists()
    try:
        found = trained_ensemble(path) if exists else None
    except RunError:
        found = None  # begun, but not finished
    if found is None or found.config != config:  # another demo's run: refused when it is opened
        with (
            open_run(path, config, resume=exists) as folder,
            stop_sign() as sign,
            progress(f"{name}: {config.trained_with}", config.iterations, config.precision_name) as report,
        ):
            outcome = train(config, loaded.train, loaded.test, folder, sign=sign, report=report)
        if not outcome.finished:
            raise Stopped(outcome.reason, outcome.iteration)
        found = trained_ensemble(path)
    return found


def _accuracy(trained: Trained, solver: Solver, test_set: Labelled) -> float:
    return evaluate(trained.ensemble, (solver,) * trained.ensemble.size, test_set).accuracy[0]


def _panel(trained: Trained, test_set: Labelled, verdict: Verdict) -> TrajectoryPanel:
    """Trajectories as the training solver walks them, and accuracy against the number of test steps."""
    solver, (inputs, labels) = trained.solvers[0], (part[:POINTS] for part in test_set)
    states = walks(trained, inputs, trained.solvers)[:, 0]
    steps = len(states) - 1
    how = f"{steps} Euler steps" if trained.config.controller is None else f"adapted Euler steps ({steps})"
    others = [n for n in TEST_STEPS if not 0.75 < n / steps < 1.35]  # room for its own number on the axis
    solvers = {n: FixedStep.of("euler", steps=n) for n in others} | {steps: solver}
    return TrajectoryPanel(
        title=f"trained with {how}: {WORDS[verdict.outcome]}",
        states=states,
        labels=labels.numpy(),
        test_steps=np.array(sorted(solvers)),
        accuracy=np.array([_accuracy(trained, solvers[n], test_set) for n in sorted(solvers)]),
        trained_steps=steps,
        **seen(head_rows(trained, "demo"), states),
    )
