"""`windermere train`."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from windermere.cli.adapted import (
    adaptation_of,
    check_flags,
    draw_adapted,
    ended_at_a_bound,
    refuse_a_start_out_of_bounds,
    refuse_another_start,
    refuse_what_cannot_be_checked,
)
from windermere.cli.options import (
    FLAG,
    Arithmetic,
    AsJson,
    Control,
    Device,
    Method,
    Step,
    Steps,
    TimeLimit,
    Tolerance,
    check_device,
    exit_if_stopped,
    print_json,
    read_seconds,
    read_seeds,
    read_solver,
    read_start,
    stdout,
)
from windermere.cli.terminal import stderr, training_progress
from windermere.errors import UsageError
from windermere.paper import data as data_sets
from windermere.paper.arithmetic import IMAGES
from windermere.paper.training import (
    RunConfig,
    TrainingOutcome,
    check_batch_size,
    check_precision,
    open_run,
    paper_settings,
    resumed_config,
    stop_sign,
    train,
)
from windermere.records import read_metrics

ADAPTATION, OPTIMIZATION, RECORDS = "Adaptation", "Optimization", "Records"
"""Headings of the help text."""


def train_command(
    out: Annotated[Path, typer.Option(help="Folder for the run's files.")],
    data: Annotated[
        str | None, typer.Option(help="sphere2 or another dimension (sphere1, sphere900, ...), mnist or cifar10.")
    ] = None,
    solver: Method = None,
    steps: Steps = None,
    step: Step = None,
    tolerance: Tolerance = None,
    control: Control = None,
    seeds: Annotated[str | None, typer.Option(help="How many (5 means 0 to 4), or which: 3,7,8. Default: 1.")] = None,
    adapt: Annotated[
        str | None,
        typer.Option(
            help="steady or paper: adapt the step or tolerance while training; none has to be given then.",
            rich_help_panel=ADAPTATION,
        ),
    ] = None,
    check: Annotated[
        str | None, typer.Option(help="Method of the more accurate solver to compare with.", rich_help_panel=ADAPTATION)
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="With --adapt paper: accuracies this far apart differ. Default: 0.1.", rich_help_panel=ADAPTATION
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            help="With --adapt steady: share of the predicted probability that may move. Default: 0.01.",
            rich_help_panel=ADAPTATION,
        ),
    ] = None,
    gradient: Annotated[
        str | None, typer.Option(help="backprop (default), checkpoint or adjoint.", rich_help_panel=OPTIMIZATION)
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Default: the paper's for this data set.", rich_help_panel=OPTIMIZATION)
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate. Default: the paper's.", rich_help_panel=OPTIMIZATION)
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="adam or sgd. Default: the paper's.", rich_help_panel=OPTIMIZATION)
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Default: the paper's.", rich_help_panel=OPTIMIZATION)] = None,
    device: Device = None,
    dtype: Annotated[str | None, typer.Option(help="float32 (default) or float64.")] = None,
    arithmetic: Arithmetic = None,
    data_seed: Annotated[int | None, typer.Option(help="Draws the points of the spheres. Default: 0.")] = None,
    log_every: Annotated[
        int | None, typer.Option(help="Iterations between rows of metrics.jsonl.", rich_help_panel=RECORDS)
    ] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Iterations between evaluations on the test set.", rich_help_panel=RECORDS)
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Iterations between checkpoints.", rich_help_panel=RECORDS)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", metavar=FLAG, help="Go on with the run in --out.")] = False,
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
) -> None:
    """Train one or more seeds, with the paper's settings unless told otherwise.

    Example: windermere train --data sphere2 --solver euler --steps 64 --seeds 5 --out runs/fine
    """
    stored = resumed_config(out, {}) if resume else None
    adaptation = adaptation_of(out, adapt, stored)
    only = {"check": check, "threshold": threshold, "target": target}
    check_flags(adaptation, {n: v for n, v in only.items() if v is not None}, control, resume=resume)
    precision: dict[str, Any] = {"steps": steps, "step": step, "tolerance": tolerance, "control": control}
    if adaptation == "none":
        chosen, first_step = read_solver(solver, **precision), None
    else:
        chosen, first_step = read_start(solver, **precision)
    given = {
        "data": data,
        "solver": chosen,
        "adapt": adapt,
        **only,
        "first_step": first_step,
        "seeds": None if seeds is None else read_seeds(seeds),
        "gradient": gradient,
        "iterations": iterations,
        "lr": lr,
        "optimizer": optimizer,
        "batch_size": batch_size,
        "device": device,
        "dtype": dtype,
        "arithmetic": arithmetic,
        "data_seed": data_seed,
        "log_every": log_every,
        "evaluate_every": evaluate_every,
        "checkpoint_every": checkpoint_every,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    config = _new_config(settings) if stored is None else _resumed_config(out, stored, settings)
    limit = read_seconds(time_limit)
    outcome = _train(config, out, resume=resume, time_limit=limit)
    _print_outcome(config, out, outcome, as_json=as_json)


def _new_config(settings: dict[str, Any]) -> RunConfig:
    for name, flag in (("data", "--data"), ("solver", "--solver")):
        if name not in settings:
            raise UsageError(f"a new run needs {flag} (or --resume to go on with the run in --out)")
    if settings.get("adapt", "none") != "none":
        refuse_what_cannot_be_checked(settings["solver"], settings.get("check"))
    if settings["data"] in IMAGES and "data_seed" in settings:
        raise UsageError(
            f"--data-seed draws the points of spheres, and the data are '{settings['data']}': leave it out"
        )
    settings = {**paper_settings(settings["data"], settings["solver"]), "seeds": (0,), **settings}
    config = RunConfig(**settings)
    refuse_a_start_out_of_bounds(config)
    return config


def _resumed_config(out: Path, stored: RunConfig, settings: dict[str, Any]) -> RunConfig:
    if stored.adapt != "none":
        refuse_another_start(out, stored, settings)
        refuse_what_cannot_be_checked(stored.solver, settings.get("check"))
    return resumed_config(out, settings)


def _train(config: RunConfig, out: Path, *, resume: bool, time_limit: float | None) -> TrainingOutcome:
    """All that can be wrong with a run is told before its folder is made."""
    check_device(config.device)
    loaded = data_sets.load(config.data, seed=config.data_seed)
    check_batch_size(config.batch_size, len(loaded.train.labels))
    if not resume:
        check_precision(config, loaded.train)
    with (
        open_run(out, config, resume=resume) as run,
        stop_sign(time_limit) as sign,
        training_progress(config.data, config.iterations, config.precision_name, sign) as report,
    ):
        return train(config, loaded.train, loaded.test, run, sign=sign, report=report)


def _print_outcome(config: RunConfig, out: Path, outcome: TrainingOutcome, *, as_json: bool) -> None:
    rows = read_metrics(out) if outcome.finished and config.adapt != "none" else []
    if as_json:
        print_json({"run": str(out), "seeds": list(config.seeds), **asdict(outcome)})
    elif outcome.finished and outcome.test is not None:
        stdout.print(_table(config, outcome.iteration, outcome.test.accuracy))
    if (doubt := ended_at_a_bound(config, rows)) is not None:
        (stderr if as_json else stdout).print(doubt, soft_wrap=True)
    if outcome.finished and not as_json:
        stdout.print(f"results are in {out}", soft_wrap=True)
    if (figure := draw_adapted(config, out, rows)) is not None and not as_json:
        stdout.print(f"figure: {figure}", soft_wrap=True)
    if not outcome.finished:
        stderr.print(
            f"stopped ({outcome.reason}) after iteration {outcome.iteration} of {config.iterations}; "
            f"go on with: windermere train --out {shlex.quote(str(out))} --resume",
            soft_wrap=True,
        )
    exit_if_stopped(outcome.reason)


def _table(config: RunConfig, iterations: int, accuracies: list[float]) -> Table:
    table = Table("seed", "test accuracy", title=f"{config.data}, {config.trained_with}, {iterations} iterations")
    for seed, accuracy in zip(config.seeds, accuracies, strict=True):
        table.add_row(str(seed), f"{accuracy:.4f}")
    return table
