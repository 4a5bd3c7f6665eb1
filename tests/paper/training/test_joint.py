"""Runs trained as one ensemble against each by itself."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from windermere.adaptation import StepAdaptation
from windermere.errors import DivergedError, UsageError
from windermere.paper.training import (
    RunConfig,
    StopSign,
    TrainingOutcome,
    captured,
    loop,
    make_ensemble,
    open_run,
    train_together,
)
from windermere.paper.training.captured import CapturedSteps, fewer_steps_cost_less
from windermere.paper.training.trainer import Training
from windermere.solvers import FixedStep, Tableau

from .small import a_config, checkpoint, some_spheres, trained
from .test_captured import assert_close_run

STEPS = (8, 3, 1)


def configs(**changes: Any) -> list[RunConfig]:
    return [a_config(solver=FixedStep.of("euler", steps=n), seeds=(4, 1), **changes) for n in STEPS]


def together(
    folder: Path,
    wanted: list[RunConfig],
    *,
    resume: bool = False,
    stop_at: int | None = None,
    capture: bool | None = True,
) -> list[TrainingOutcome]:
    sign = StopSign()

    def report(run: int, now: Any) -> None:
        if stop_at is not None and now.iteration >= stop_at:
            sign.reason = "interrupted"

    with ExitStack() as stack:
        runs = [stack.enter_context(open_run(folder / str(i), c, resume=resume)) for i, c in enumerate(wanted)]
        return train_together(wanted, *some_spheres(), runs, sign=sign, report=report, capture=capture)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("capture", [True, None])
def test_runs_that_train_together_equal_each_by_itself(tmp_path: Path, optimizer: str, capture: bool | None) -> None:
    wanted = configs(optimizer=optimizer)
    outcomes = together(tmp_path, wanted, capture=capture)
    assert [outcome.finished for outcome in outcomes] == [True] * 3
    for i, config in enumerate(wanted):
        trained(tmp_path / f"alone {i}", config)
        assert_close_run(tmp_path / str(i), tmp_path / f"alone {i}")


def test_the_kernels_are_asked_about_states_that_go_with_the_members_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def goes_together(tableau: Tableau, z: Tensor, weights: list[Tensor]) -> bool:
        return z.ndim == 3 and all(len(weight) == len(z) for weight in weights)

    monkeypatch.setattr(captured, "can_walk", goes_together)
    config = a_config(seeds=(4, 1, 2))
    assert fewer_steps_cost_less(make_ensemble(config), config.solver, some_spheres()[0][0])


def test_where_a_step_cannot_be_captured_runs_still_train_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = configs(iterations=20)

    def fails(self: CapturedSteps) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(CapturedSteps, "_capture", fails)
    with pytest.warns(UserWarning, match="taken one by one: operation not permitted"):
        together(tmp_path, wanted)
    trained(tmp_path / "alone", wanted[0])
    assert_close_run(tmp_path / "0", tmp_path / "alone")


def test_runs_stopped_together_may_go_on_together(tmp_path: Path) -> None:
    wanted = configs(iterations=30)
    stopped = together(tmp_path, wanted, stop_at=15)
    assert [(outcome.finished, outcome.iteration) for outcome in stopped] == [(False, 15)] * 3
    together(tmp_path, wanted, resume=True)
    for i, config in enumerate(wanted):
        trained(tmp_path / f"alone {i}", config)
        assert_close_run(tmp_path / str(i), tmp_path / f"alone {i}")


def test_where_one_run_fails_all_keep_the_state_before_it(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match="training stopped in iteration 2: for seed "):
        together(tmp_path, configs(optimizer="sgd", lr=1e20, log_every=10, checkpoint_every=10))
    assert [checkpoint(tmp_path / str(i)).meta["iteration"] for i in range(3)] == [1] * 3


def test_whether_runs_are_joined_is_decided_before_any_training_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, made = configs(), list[RunConfig]()

    def noted(config: RunConfig, *rest: Any) -> Training:
        made.append(config)
        return Training(config, *rest)

    monkeypatch.setattr(loop, "Training", noted)
    together(tmp_path, wanted, capture=None)
    assert made == wanted


def test_runs_that_cannot_be_joined_are_refused_before_any_of_their_metrics_is_cut(tmp_path: Path) -> None:
    wanted = [a_config(), a_config(lr=0.5)]
    for i, config in enumerate(wanted):
        trained(tmp_path / str(i), config, stop_at=5)
        with (tmp_path / str(i) / "metrics.jsonl").open("a") as metrics:
            metrics.write("{}\n")  # younger than the checkpoint: cut where a run goes on
    before = [(tmp_path / str(i) / "metrics.jsonl").read_bytes() for i in range(2)]
    with pytest.raises(UsageError, match="and in nothing else"):
        together(tmp_path, wanted, resume=True)
    assert [(tmp_path / str(i) / "metrics.jsonl").read_bytes() for i in range(2)] == before


@pytest.mark.parametrize(
    "change",
    [
        {"lr": 0.5},
        {"solver": FixedStep.of("rk4", steps=3)},
        {"controller": StepAdaptation(train="euler", check="midpoint")},
    ],
    ids=str,
)
def test_runs_that_differ_in_more_than_their_steps_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="differ in the precision of their solvers and in seeds, and in nothing else"):
        together(tmp_path, [a_config(), a_config(**change)])
