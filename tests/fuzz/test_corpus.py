"""What the fuzzer has broken once: each is a sentence now, or the right answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import windermere as wm
from tests.auditing.test_known_cases import ring, rotation_verdict
from tests.auditing.test_unlabelled import block
from tests.fuzz.sittings import CONFIGS, sit
from windermere.adaptation import controller_from_dict
from windermere.cli.report import page_of
from windermere.errors import RunError, UsageError
from windermere.nn import Autonomous
from windermere.paper.training import resumed_config, trained_ensemble
from windermere.solvers import solver_from_dict


def a_verdict(**changes: Any) -> dict[str, Any]:
    return {**rotation_verdict(2, evidence=False).to_dict(), **changes}


YES: Any = True
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a solver whose kind is a list": (lambda: solver_from_dict({"kind": []}), "there is no kind of solver"),
    "a controller whose kind is a dict": (lambda: controller_from_dict({"kind": {}}), "there is no kind of controller"),
    "a span whose powers are no numbers": (
        lambda: wm.SteadySteps(train="bosh32", check="dopri54", span=1e150),
        "span is a length of time from 1e-30 to 1e",
    ),
    "a budget beyond all numbers": (
        lambda: wm.StepAdaptation(train="euler", check="bosh32", budget=10**400),
        r"budget is a number of steps up to 1e\+15, not 1000",
    ),
    "options that are a truth value": (
        lambda: wm.odeint_adjoint(Autonomous(nn.Linear(2, 2)), torch.ones(3, 2), torch.arange(2.0), options=YES),
        "options must be a dict, not a bool",
    ),
    "a tolerance beyond all numbers": (
        lambda: wm.odeint(lambda t, z: -z, torch.ones(3, 2), torch.arange(2.0), atol=10**400),
        "atol must be a number",
    ),
    "a verdict with a threshold below 0": (
        lambda: wm.Verdict.from_dict(a_verdict(threshold=-1)),
        "no verdict that to_dict.. wrote: ValueError",
    ),
    "a page of a verdict whose table is a number": (
        lambda: page_of(a_verdict(table=3)),
        "this saved verdict is damaged",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_was_a_traceback_is_a_sentence(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(UsageError, match=words):
        call()


@pytest.mark.parametrize("dtype", [np.ulonglong, np.longdouble, ">f8", ">i4", bool])
def test_targets_may_be_numbers_of_any_kind_that_numpy_has(dtype: Any) -> None:
    targets = np.ones((400, 2)).astype(dtype)
    found = wm.audit(block(4), (ring(), targets), metric="mse", evidence=False)
    assert found.own == wm.audit(block(4), (ring(), np.ones((400, 2))), metric="mse", evidence=False).own


def edited(path: Path, name: str, edit: Callable[[Any], Any]) -> None:
    path.joinpath(name).write_text(json.dumps(edit(json.loads(path.joinpath(name).read_text()))))


@pytest.mark.parametrize("change", [{"lr": 0.5}, {"iterations": 13}, {"seeds": [3]}, {"data_seed": 1}], ids=str)
@pytest.mark.parametrize("stop_at", [None, 4], ids=["before the first checkpoint", "after it"])
def test_a_run_whose_settings_were_damaged_does_not_go_on_with_others(
    tmp_path: Path, change: dict[str, Any], stop_at: int | None
) -> None:
    """Nobody says which settings there should be: all that was there to tell by was the checkpoint."""
    run, config = tmp_path / "run", CONFIGS[0]
    sit(run, config, stop_at=stop_at or 2)
    if stop_at is None:
        (run / "checkpoint.safetensors").unlink()
    edited(run, "config.json", lambda values: {**values, **change})
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.raises(RunError, match=r"config\.json is damaged \(it is not as it was written"):
        resumed(run)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def resumed(run: Path) -> bool:
    """As on the command line, where nothing but the folder is named."""
    return sit(run, resumed_config(run, {}))


def test_a_row_that_was_damaged_is_not_taken_for_what_was_measured(tmp_path: Path) -> None:
    run = tmp_path / "run"
    sit(run, CONFIGS[0], stop_at=6)
    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"accuracy": 0.', '"accuracy": 1.', 1))
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged \(its rows are not those that were there"):
        resumed(run)


def test_a_model_is_not_evaluated_with_other_settings_than_it_was_trained_with(tmp_path: Path) -> None:
    run = tmp_path / "run"
    sit(run, CONFIGS[0])
    edited(run, "config.json", lambda values: {**values, "data_seed": 1})
    with pytest.raises(RunError, match="the model was trained with other settings than those in config"):
        trained_ensemble(run)
