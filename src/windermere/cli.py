"""The command line: parse, call one function, print. Answers go to standard output, progress to standard error."""

import json
import re
import shlex
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NoReturn

import torch
import typer
from rich.console import Console
from rich.table import Table

import windermere
from windermere import data as data_sets
from windermere.errors import UsageError, WindermereError
from windermere.solvers import METHODS, Adaptive, FixedStep, Solver
from windermere.studies import demo as demo_study
from windermere.terminal import download_progress, stderr, training_progress
from windermere.training import (
    Outcome,
    RunConfig,
    check_batch_size,
    evaluate,
    open_run,
    paper_settings,
    resumed_config,
    stop_sign,
    train,
    trained_ensemble,
)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Is your neural ODE really an ODE? Train Neural ODEs and test them with other solvers.",
)
data_app = typer.Typer(no_args_is_help=True, help="Get and list data sets.")
app.add_typer(data_app, name="data")
stdout = Console(highlight=False, markup=False, emoji=False)

Method = Annotated[str | None, typer.Option("--solver", help=f"Method: {', '.join(METHODS)}.")]
Steps = Annotated[int | None, typer.Option(help="Number of equal steps over the time span [0, 1].")]
Step = Annotated[float | None, typer.Option(help="Step size; the last step is shortened to land on the end.")]
Tolerance = Annotated[float | None, typer.Option(help="Adaptive steps with rtol = atol = this.")]
Control = Annotated[str | None, typer.Option(help="With --tolerance: whose error is controlled, batch or sample.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ... (default: cpu)")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False) -> None:
    if version:
        stdout.print(f"windermere {windermere.__version__}")
        raise typer.Exit


@app.command("train")
def train_command(
    out: Annotated[Path, typer.Option(help="Folder for the run's files.")],
    data: Annotated[str | None, typer.Option(help="sphere2, sphere<d>, mnist or cifar10.")] = None,
    solver: Method = None,
    steps: Steps = None,
    step: Step = None,
    tolerance: Tolerance = None,
    control: Control = None,
    seeds: Annotated[str | None, typer.Option(help="How many (5 means 0 to 4), or which: 3,7,8. Default: 1.")] = None,
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
    chosen = _solver(solver, steps=steps, step=step, tolerance=tolerance, control=control)
    given = {
        "data": data,
        "solver": chosen,
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


@app.command("evaluate")
def evaluate_command(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    solver: Method = None,
    steps: Steps = None,
    step: Step = None,
    tolerance: Tolerance = None,
    control: Control = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Test a trained run with its own solver and with another one, side by side."""
    other = _solver(solver, steps=steps, step=step, tolerance=tolerance, control=control)
    trained = trained_ensemble(run, device=_device(device))
    config, ensemble = trained.config, trained.ensemble
    test = data_sets.load(config.data, seed=config.data_seed).test
    labelled = (test.inputs.to(ensemble.device, ensemble.dtype), test.labels.to(ensemble.device))
    solvers = [config.solver] if other is None or other == config.solver else [config.solver, other]
    results = [evaluate(ensemble, (s,) * ensemble.size, labelled) for s in solvers]
    if as_json:
        rows = [
            {"solver": str(s), "seeds": list(config.seeds), **asdict(r)} for s, r in zip(solvers, results, strict=True)
        ]
        _print_json({"run": str(run), "data": config.data, "results": rows})
        return
    table = Table(
        "seed", *(f"{s}{' (own)' if s == config.solver else ''}" for s in solvers), title=f"test accuracy of {run}"
    )
    for i, seed in enumerate(config.seeds):
        table.add_row(str(seed), *(f"{r.accuracy[i]:.4f}" for r in results))
    table.add_section()
    table.add_row("mean", *(f"{fmean(r.accuracy):.4f}" for r in results))
    table.add_row("evaluations", *(f"{fmean(r.evaluations):g}" for r in results))
    stdout.print(table)


@app.command("demo")
def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the demo's runs and figure.")] = Path("runs/demo"),
) -> None:
    """Train one model with too few steps and one with enough, and look at both with a better solver."""
    result = demo_study.run(out, progress=training_progress)
    table = Table("trained with", "own solver", f"test: {result.finer}", "so it is")
    for entry in result.entries:
        table.add_row(entry.trained_with, f"{entry.own:.3f}", f"{entry.finer:.3f}", entry.judgement)
    stdout.print(table)
    stdout.print(f"figure: {result.figure}", soft_wrap=True)
    stdout.print(f"runs:   {', '.join(str(entry.run) for entry in result.entries)}", soft_wrap=True)


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="mnist or cifar10.")],
    source: Annotated[Path | None, typer.Option("--from", help="Take files that are already in this folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Download a data set from its official server, checked and resumed, or take it from a folder."""
    with download_progress(name) as progress:
        paths = data_sets.get(name, source=source, progress=progress)
    if as_json:
        _print_json({"name": name, "files": [str(path) for path in paths]})
        return
    stdout.print(f"{name}: {len(paths)} files, complete and checked, in {data_sets.data_root() / name}", soft_wrap=True)


@data_app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """What is on this machine, by full checksums."""
    found = data_sets.status()
    if as_json:
        _print_json([{**asdict(entry), "complete": entry.complete} for entry in found])
        return
    table = Table("data set", "state", "folder")
    for entry in found:
        missing, corrupt = ", ".join(entry.missing), ", ".join(path.name for path in entry.corrupt)
        state = (
            "complete"
            if entry.complete
            else "; ".join(f"{word}: {names}" for word, names in (("missing", missing), ("corrupt", corrupt)) if names)
        )
        table.add_row(entry.name, state, str(entry.folder))
    table.add_row("sphere<d>", "computed from a seed", "-")
    stdout.print(table)


def _solver(
    method: str | None, *, steps: int | None, step: float | None, tolerance: float | None, control: str | None
) -> Solver | None:
    """The solver that the flags describe, None where they describe none."""
    precisions = {"--steps": steps, "--step": step, "--tolerance": tolerance}
    given = [flag for flag, value in precisions.items() if value is not None]
    if method is None and not given and control is None:
        return None
    if method is None:
        raise UsageError(f"{(given or ['--control'])[0]} needs a method: add --solver, for example --solver euler")
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise UsageError(f"--solver {method} needs exactly one of --steps, --step and --tolerance, but got {found}")
    if control is not None and tolerance is None:
        raise UsageError("--control says whose error steers adaptive steps, so it goes with --tolerance only")
    if tolerance is not None:
        return Adaptive(method, tolerance=tolerance, control=control or "batch")  # type: ignore[arg-type]
    return FixedStep.of(method, steps=steps) if steps is not None else FixedStep(method, step=step or 0.0)


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


def _device(name: str | None) -> str:
    """A device that is there; a missing one is told before anything is written."""
    name = name or "cpu"
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        why = textwrap.shorten(str(error), 100, placeholder=" ...")
        raise UsageError(f"there is no device '{name}' here ({why}): use --device cpu") from error
    return name


def _new_config(settings: dict[str, Any]) -> RunConfig:
    for name, flag in (("data", "--data"), ("solver", "--solver")):
        if name not in settings:
            raise UsageError(f"a new run needs {flag} (or --resume to go on with the run in --out)")
    settings = {**paper_settings(settings["data"], settings["solver"]), "seeds": (0,), **settings}
    return RunConfig(**settings)


def _train(config: RunConfig, out: Path, *, resume: bool, time_limit: float | None) -> Outcome:
    """All that can be wrong with a run is told before its folder is made."""
    _device(config.device)
    loaded = data_sets.load(config.data, seed=config.data_seed)
    training_set, test_set = ((split.inputs, split.labels) for split in (loaded.train, loaded.test))
    check_batch_size(config.batch_size, len(loaded.train.labels))
    with (
        open_run(out, config, resume=resume) as run,
        stop_sign(time_limit) as sign,
        training_progress(config.data, config.iterations, config.precision_name) as report,
    ):
        return train(config, training_set, test_set, run, sign=sign, report=report)


def _print_outcome(config: RunConfig, out: Path, outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        _print_json({"run": str(out), "seeds": list(config.seeds), **asdict(outcome)})
    elif outcome.finished and outcome.test is not None:
        table = Table("seed", "test accuracy", title=f"{config.data}, {config.solver}, {outcome.iteration} iterations")
        for seed, accuracy in zip(config.seeds, outcome.test.accuracy, strict=True):
            table.add_row(str(seed), f"{accuracy:.4f}")
        stdout.print(table)
        stdout.print(f"results are in {out}", soft_wrap=True)
    if not outcome.finished:
        stderr.print(
            f"stopped ({outcome.reason}) after iteration {outcome.iteration} of {config.iterations}; "
            f"go on with: windermere train --out {shlex.quote(str(out))} --resume",
            soft_wrap=True,
        )
    if outcome.reason in ("interrupted", "terminated"):
        raise typer.Exit(130 if outcome.reason == "interrupted" else 143)


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def _fail(message: str) -> NoReturn:
    stderr.print("error:", style="bold red", end=" ")
    stderr.print(message, soft_wrap=True)
    sys.exit(1)


def main() -> None:
    """The entry point: an error of ours is one sentence and exit code 1. Flags that are not there are typer's, code 2;
    so are Ctrl-C outside of training, code 130, and a pipe that nobody reads."""
    try:
        app()
    except WindermereError as error:
        _fail(str(error))
