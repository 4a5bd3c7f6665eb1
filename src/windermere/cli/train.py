"""What `windermere train` does."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from windermere.cli.adapted import MODES, draw_adapted, ended_at_a_bound, read_adaptation
from windermere.cli.console import exit_if_stopped, folding, print_json, stderr, stdout, tell
from windermere.cli.drawn import read_random_steps
from windermere.cli.elsewhere import device_for
from windermere.cli.reading import check_device, read_seconds, read_seeds, read_solver, read_start
from windermere.cli.terminal import training_progress
from windermere.errors import UsageError
from windermere.paper import data as data_sets
from windermere.paper.arithmetic import IMAGES
from windermere.paper.cluster.pool import Cluster
from windermere.paper.cluster.single import train_elsewhere
from windermere.paper.training import (
    Adaptation,
    RunConfig,
    TrainingOutcome,
    check_batch_size,
    check_precision,
    make_controller,
    open_run,
    paper_settings,
    resumed_config,
    stop_sign,
    train,
)
from windermere.records import read_metrics


def train_run(
    out: Path,
    settings: Mapping[str, Any],
    precision: Mapping[str, Any],
    *,
    resume: bool,
    time_limit: str | None,
    cluster: Cluster | None = None,
    as_json: bool,
) -> None:
    """The settings are a config's, by name, as they were typed; None is one that was not."""
    adapt = {} if settings["adapt"] is None else {"adapt": settings["adapt"]}
    stored = resumed_config(out, adapt) if resume else None  # first of all, how other flags are read depends on it
    adaptation = read_adaptation(settings, precision["control"], stored)
    given = {**settings, **_start(settings["solver"], precision, adaptation), "seeds": _seeds(settings["seeds"])}
    drawn = {"random_steps": read_random_steps(out, settings, adaptation, stored), "finish": None}
    given = {name: value for name, value in {**given, **drawn}.items() if value is not None}
    config = _new_config(given, adaptation) if stored is None else resumed_config(out, given)
    limit = read_seconds(time_limit)
    if cluster is None:
        outcome = _train(config, out, resume=resume, time_limit=limit)
    else:
        outcome = _train_elsewhere(config, out, cluster, resume=resume, time_limit=limit)
    _print_outcome(config, out, outcome, as_json=as_json)


def _start(method: str | None, precision: Mapping[str, Any], adaptation: Adaptation | None) -> dict[str, Any]:
    if adaptation is None:
        return {"solver": read_solver(method, **precision)}
    solver, first_step = read_start(method, **precision)
    return {"solver": solver, "first_step": first_step}


def _seeds(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else read_seeds(text)


def _new_config(settings: dict[str, Any], adaptation: Adaptation | None) -> RunConfig:
    for name, flag in (("data", "--data"), ("solver", "--solver")):
        if name not in settings:
            raise UsageError(f"a new run needs {flag} (or --resume to go on with the run in --out)")
    rule = {name: settings.pop(name) for name in MODES if name in settings}
    settings.pop("adapt", None)
    if adaptation is not None:
        settings["controller"] = make_controller(adaptation, settings["solver"], **rule)
    if settings["data"] in IMAGES and "data_seed" in settings:
        raise UsageError(
            f"--data-seed draws the points of spheres, and the data are '{settings['data']}': leave it out"
        )
    return RunConfig(**{**paper_settings(settings["data"], settings["solver"]), "seeds": (0,), **settings})


def _train(config: RunConfig, out: Path, *, resume: bool, time_limit: float | None) -> TrainingOutcome:
    check_device(config.device)
    loaded = _checked_data(config, resume=resume)
    with (
        open_run(out, config, resume=resume) as run,
        stop_sign(time_limit) as sign,
        training_progress(config.data, config.iterations, config.precision_name, sign) as report,
    ):
        return train(config, loaded.train, loaded.test, run, sign=sign, report=report)


def _train_elsewhere(
    config: RunConfig, out: Path, cluster: Cluster, *, resume: bool, time_limit: float | None
) -> TrainingOutcome:
    device_for(config.device, cluster)
    loaded = _checked_data(replace(config, device="cpu"), resume=resume)
    with (
        stop_sign(time_limit) as sign,
        training_progress(config.data, config.iterations, config.precision_name, sign) as report,
    ):
        sets = loaded.train, loaded.test
        return train_elsewhere(config, sets, out, cluster, resume=resume, sign=sign, report=report)


def _checked_data(config: RunConfig, *, resume: bool) -> data_sets.DataSet:
    """All that can be wrong with a run is told before its folder is made."""
    loaded = data_sets.load(config.data, seed=config.data_seed)
    check_batch_size(config.batch_size, len(loaded.train.labels))
    if not resume:
        check_precision(config, loaded.train)
    return loaded


def _print_outcome(config: RunConfig, out: Path, outcome: TrainingOutcome, *, as_json: bool) -> None:
    rows = read_metrics(out) if outcome.finished and config.controller is not None else []
    if as_json:
        print_json({"run": str(out), "seeds": list(config.seeds), **asdict(outcome)})
    elif outcome.finished and outcome.test is not None:
        tell(f"{config.data}, {config.trained_with}, {outcome.iteration} iterations")
        stdout.print(_table(config, outcome.test.accuracy))
    if (doubt := ended_at_a_bound(config, rows)) is not None:
        (stderr if as_json else stdout).print(doubt, soft_wrap=True)
    if outcome.finished and not as_json:
        stdout.print(f"results are in {out}", soft_wrap=True)
    if (figure := draw_adapted(config, out, rows)) is not None and not as_json:
        stdout.print(f"figure: {figure}", soft_wrap=True)
    if outcome.idle:
        stderr.print(
            f"nothing was left to do: all {outcome.iteration} iterations had been trained before; for more of them, "
            "resume with a larger --iterations",
            soft_wrap=True,
        )
    if not outcome.finished:
        stderr.print(
            f"stopped ({outcome.reason}) after iteration {outcome.iteration} of {config.iterations}; "
            f"go on with: windermere train --out {shlex.quote(str(out))} --resume",
            soft_wrap=True,
        )
    exit_if_stopped(outcome.reason)


def _table(config: RunConfig, accuracies: list[float]) -> Table:
    table = folding("seed", "test accuracy")
    for seed, accuracy in zip(config.seeds, accuracies, strict=True):
        table.add_row(str(seed), f"{accuracy:.4f}")
    return table
