"""`windermere train`."""

from pathlib import Path
from typing import Annotated

import typer

from windermere.cli.names import DATA, METHODS, completing
from windermere.cli.options import (
    FLAG,
    Arithmetic,
    AsJson,
    Control,
    Device,
    GpuShare,
    Method,
    Ray,
    Step,
    Steps,
    TimeLimit,
    Tolerance,
)
from windermere.starting import importing

ADAPTATION, OPTIMIZATION, RECORDS = "Adaptation", "Optimization", "Records"
"""Headings of the help text."""


def train_command(
    out: Annotated[Path, typer.Option(help="Folder for the run's files.")],
    data: Annotated[
        str | None,
        typer.Option(
            help="sphere2 or another dimension (sphere1, sphere900, ...), mnist, mnist-patches or cifar10.",
            autocompletion=completing(DATA),
        ),
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
        str | None,
        typer.Option(
            help="Method of the more accurate solver to compare with.",
            rich_help_panel=ADAPTATION,
            autocompletion=completing(METHODS),
        ),
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
    random_steps: Annotated[
        int | None,
        typer.Option(
            help="Draw the number of steps anew for each batch, with this mean (6 is a good one). --solver and --steps "
            "are what training ends with: choose fine ones.",
            rich_help_panel=ADAPTATION,
        ),
    ] = None,
    finish: Annotated[
        float | None,
        typer.Option(
            help="With --random-steps: the share of all iterations, at the end, in which steps are refined down to "
            "--steps. Default: 0.2.",
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
    ray: Ray = None,
    gpu_share: GpuShare = None,
    as_json: AsJson = False,
) -> None:
    """Train one or more seeds, with the paper's settings unless told otherwise.

    Example: windermere train --data sphere2 --solver euler --steps 64 --seeds 5 --out runs/fine
    """
    with importing():
        from windermere.cli.elsewhere import read_ray
        from windermere.cli.train import train_run
    precision = {"steps": steps, "step": step, "tolerance": tolerance, "control": control}
    settings = {
        "data": data,
        "solver": solver,
        "adapt": adapt,
        "check": check,
        "threshold": threshold,
        "target": target,
        "random_steps": random_steps,
        "finish": finish,
        "seeds": seeds,
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
    cluster = read_ray(ray, gpu_share)
    train_run(out, settings, precision, resume=resume, time_limit=time_limit, cluster=cluster, as_json=as_json)
