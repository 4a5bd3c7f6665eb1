"""`windermere train`."""

import re
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from windermere import data as data_sets
from windermere.cli.options import (
    AsJson,
    Control,
    Device,
    Method,
    Step,
    Steps,
    Tolerance,
    check_device,
    print_json,
    read_solver,
    starting_solver,
    stdout,
)
from windermere.errors import UsageError
from windermere.records import read_metrics
from windermere.report import draw_adaptation
from windermere.solvers import Solver
from windermere.terminal import stderr, training_progress
from windermere.training import (
    Outcome,
    RunConfig,
    check_batch_size,
    open_run,
    paper_settings,
    resumed_config,
    stop_sign,
    train,
)


def train_command(
    out: Annotated[Path, typer.Option(help="Folder for the run's files.")],
    data: Annotated[str | None, typer.Option(help="sphere2, sphere<d>, mnist or cifar10.")] = None,
    solver: Method = None,
    steps: Steps = None,
    step: Step = None,
    tolerance: Tolerance = None,
    control: Control = None,
    seeds: Annotated[str | None, typer.Option(help="How many (5 means 0 to 4), or which: 3,7,8. Default: 1.")] = None,
    adapt: Annotated[
        str | None,
        typer.Option(help="paper or steady: adapt step or tolerance while training. No precision is needed then."),
    ] = None,
    check: Annotated[str | None, typer.Option(help="With --adapt: method of the check solver.")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="With --adapt paper: the difference of scores. Default: 0.1.")
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="With --adapt steady: probability mass that may move. Default: 0.01.")
    ] = None,
    gradient: Annotated[str | None, typer.Option(help="backprop (default), checkpoint or adjoint.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Default: the paper's for this data set.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate. Default: the paper's.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="adam or sgd. Default: the paper's.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Default: the paper's.")] = None,
    device: Device = None,
    dtype: Annotated[str | None, typer.Option(help="float32 (default) or float64.")] = None,
    data_seed: Annotated[int | None, typer.Option(help="Draws the points of the spheres. Default: 0.")] = None,
    log_every: Annotated[int | None, typer.Option(help="Iterations between rows of metrics.jsonl.")] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Iterations between evaluations on the test set.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Iterations between checkpoints.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    time_limit: Annotated[str | None, typer.Option(help="Stop in good order after 90s, 10m, 2h.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train an ensemble of seeds, with the paper's settings unless told otherwise."""
    chosen: Solver | None
    first_step = None
    if adapt is not None and solver is not None and steps is None and step is None and tolerance is None:
        chosen, first_step = starting_solver(solver)
    else:
        chosen = read_solver(solver, steps=steps, step=step, tolerance=tolerance, control=control)
    given = {
        "data": data,
        "solver": chosen,
        "adapt": adapt,
        "check": check,
        "threshold": threshold,
        "target": target,
        "first_step": first_step,
        "seeds": None if seeds is None else _seeds(seeds),
        "gradient": gradient,
        "iterations": iterations,
        "lr": lr,
        "optimizer": optimizer,
        "batch_size": batch_size,
        "device": device,
        "dtype": dtype,
        "data_seed": data_seed,
        "log_every": log_every,
        "evaluate_every": evaluate_every,
        "checkpoint_every": checkpoint_every,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    config, limit = resumed_config(out, settings) if resume else _new_config(settings), _seconds(time_limit)
    outcome = _train(config, out, resume=resume, time_limit=limit)
    _print_outcome(config, out, outcome, as_json=as_json)


def _seeds(text: str) -> tuple[int, ...]:
    if re.fullmatch(r"\d+", text):
        return tuple(range(int(text)))
    if re.fullmatch(r"\d+(,\d+)*,?", text):
        return tuple(int(part) for part in text.split(",") if part)
    raise UsageError(f"--seeds takes a number (5 means seeds 0 to 4) or a list like 3,7,8, not '{text}'")


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    if (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text)) is None:
        raise UsageError(f"--time-limit takes seconds, minutes or hours like 90s, 10m or 2h, not '{text}'")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _new_config(settings: dict[str, Any]) -> RunConfig:
    for name, flag in (("data", "--data"), ("solver", "--solver")):
        if name not in settings:
            raise UsageError(f"a new run needs {flag} (or --resume to go on with the run in --out)")
    settings = {**paper_settings(settings["data"], settings["solver"]), "seeds": (0,), **settings}
    return RunConfig(**settings)


def _train(config: RunConfig, out: Path, *, resume: bool, time_limit: float | None) -> Outcome:
    """All that can be wrong with a run is told before its folder is made."""
    check_device(config.device)
    loaded = data_sets.load(config.data, seed=config.data_seed)
    training_set, test_set = ((split.inputs, split.labels) for split in (loaded.train, loaded.test))
    check_batch_size(config.batch_size, len(loaded.train.labels))
    with (
        open_run(out, config, resume=resume) as run,
        stop_sign(time_limit) as sign,
        training_progress(config.data, config.iterations, config.precision_name, sign) as report,
    ):
        return train(config, training_set, test_set, run, sign=sign, report=report)


def _print_outcome(config: RunConfig, out: Path, outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        print_json({"run": str(out), "seeds": list(config.seeds), **asdict(outcome)})
    elif outcome.finished and outcome.test is not None:
        table = Table(
            "seed", "test accuracy", title=f"{config.data}, {config.trained_with}, {outcome.iteration} iterations"
        )
        for seed, accuracy in zip(config.seeds, outcome.test.accuracy, strict=True):
            table.add_row(str(seed), f"{accuracy:.4f}")
        stdout.print(table)
        stdout.print(f"results are in {out}", soft_wrap=True)
    if outcome.finished and (figure := _drawn(config, out)) is not None and not as_json:
        stdout.print(f"figure: {figure}", soft_wrap=True)
    if not outcome.finished:
        stderr.print(
            f"stopped ({outcome.reason}) after iteration {outcome.iteration} of {config.iterations}; "
            f"go on with: windermere train --out {shlex.quote(str(out))} --resume",
            soft_wrap=True,
        )
    if outcome.reason in ("interrupted", "terminated"):
        raise typer.Exit(130 if outcome.reason == "interrupted" else 143)


def _drawn(config: RunConfig, out: Path) -> Path | None:
    """The figure of an adapted run; None where its precision was never reviewed."""
    rows = [] if config.adapt == "none" else read_metrics(out)
    if not any("before" in row for row in rows):
        return None
    target = config.target if config.adapt == "steady" else None
    draw_adaptation(rows, out / "adaptation.png", threshold=config.threshold, target=target)
    return out / "adaptation.png"
