"""What `windermere audit` does."""

import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Column, Table

import windermere
from windermere.auditing import Outcome, Verdict, audit
from windermere.auditing.options import as_question, check_samples
from windermere.auditing.saving import record_of, save_records
from windermere.auditing.sets.distance import KINDS
from windermere.auditing.table import VerdictTable, verdict_table
from windermere.cli.advice import in_flags
from windermere.cli.console import print_json, stderr, stdout
from windermere.cli.places import check_page, check_place
from windermere.cli.reading import check_device
from windermere.cli.seeds_table import show_seeds
from windermere.cli.terminal import audit_progress
from windermere.errors import AuditError, RunError, UsageError, WindermereError, describe_error, is_out_of_memory
from windermere.paper import data as data_sets
from windermere.paper.training import trained_ensemble
from windermere.report.style import figure_path

EXIT_CODES = {Outcome.FLOW: 0, Outcome.TIED: 10, Outcome.UNDECIDED: 11, Outcome.COARSE: 12, Outcome.MOVED: 13}
"""So that a script can gate on it; 1 and 2 stay errors."""

COLOURS = {
    Outcome.FLOW: "bold green",
    Outcome.TIED: "bold red",
    Outcome.COARSE: "bold yellow",
    Outcome.MOVED: "bold blue",
    Outcome.UNDECIDED: "bold yellow",
}
WORST_FIRST = (Outcome.TIED, Outcome.MOVED, Outcome.UNDECIDED, Outcome.COARSE, Outcome.FLOW)
ENERGY = "energy-drift"
SAMPLES = 1000
"""Drawn at random, unless told otherwise."""
FIRST_TO_GO = ("evals", "as own", "error", "as flow")
"""Where the terminal is narrow."""
WIDE = 1000


@dataclass(frozen=True)
class Target:
    """One model to audit, and what to call it."""

    name: str
    model: Any
    batches: Any
    figure: Path
    about: dict[str, Any]
    """What is known of the model and its data."""
    data: Any = None
    """Real samples, where it is a sampler."""
    users: bool = False
    """Whether it is the user's own code."""
    seed: int | None = None
    """Where it is one of several."""


def audit_target(
    target: str,
    *,
    seed: int | None,
    samples: int | None,
    everything: bool,
    metric: str | None,
    threshold: float | None,
    outputs: str | None,
    figure: Path | None,
    html: Path | None,
    evidence: bool,
    batch_axis: int | None,
    shared: Sequence[str],
    device: str | None,
    as_json: bool,
    verbose: bool,
) -> NoReturn:
    """Every model that the target names, one after the other; the exit code is the worst verdict's."""
    if metric not in (ENERGY, *KINDS):  # of which only the model, or the data, can say more
        as_question(metric, threshold, outputs)
    if everything and samples is not None:
        raise UsageError("--samples says how many to draw, and --all takes them all: leave one of the two out")
    check_samples(samples)
    limit = None if everything else SAMPLES if samples is None else samples
    if figure is not None:
        check_place(figure_path(figure), "figure", "figure")
    if html is not None:
        check_page(html, "html")
    by = {"metric": metric, "threshold": threshold, "outputs": outputs}
    how = {"batch_axis": batch_axis, "shared": [int(name) if name.isdecimal() else name for name in shared]}
    audited: list[tuple[Target, Verdict]] = []
    records: list[dict[str, Any]] = []
    for found in _targets(target, seed, figure, device):
        if not found.users and (batch_axis is not None or shared):
            raise UsageError("--batch-axis and --shared are for a function's model: a run's takes its data as it is")
        check_place(found.figure, "figure", "figure")
        verdict = _audited(found, samples=limit, evidence=evidence, **by, **how)
        verdict.plot(found.figure)
        audited.append((found, verdict))
        if html is not None:
            with redirect_stdout(sys.stderr):  # the user's code may print
                records.append(record_of(verdict, name=found.name, about=found.about))
    if as_json:
        print_json({found.name: verdict.to_dict() for found, verdict in audited})
    else:
        _show_all(audited, verbose=verbose)
    if html is not None:
        save_records(records, html)
        (stderr if as_json else stdout).print(f"page: {html}", soft_wrap=True)
    raise typer.Exit(_exit_code([verdict for _, verdict in audited]))


def _show_all(audited: Sequence[tuple[Target, Verdict]], *, verbose: bool) -> None:
    """For several seeds a table first, and all about each of them only where that is asked for."""
    several = len(audited) > 1
    if several:
        show_seeds({str(found.seed): verdict for found, verdict in audited}, stdout)
    if verbose or not several:
        for found, verdict in audited:
            _show(found, verdict)
        return
    stdout.print(f"figures: {', '.join(str(found.figure) for found, _ in audited)}", soft_wrap=True)
    stdout.print("all solvers and the evidence: --verbose", soft_wrap=True)


def _audited(found: Target, **options: Any) -> Verdict:
    try:
        # The user's code may print: standard output is for the answer.
        with audit_progress() as report, redirect_stdout(sys.stderr):
            return _in_flags(audit(found.model, found.batches, data=found.data, report=report, **options))
    except WindermereError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        if not found.users or is_out_of_memory(error):
            raise
        raise AuditError(
            f"{found.name} could not be audited, since its model or batches raise {_told(error)}: mend that, or call "
            "windermere.audit in Python to see where it comes from"
        ) from error


def _in_flags(verdict: Verdict) -> Verdict:
    """Its sentence may advise arguments, which the command line has as flags."""
    flow = replace(verdict.reference, reason=verdict.reference.reason and in_flags(verdict.reference.reason))
    notes = tuple(in_flags(note) for note in verdict.notes)
    return replace(verdict, sentence=in_flags(verdict.sentence), reference=flow, notes=notes)


def _show(found: Target, verdict: Verdict) -> None:
    """The verdict in a sentence, the solvers as a table, and the evidence with what it proves."""
    stdout.print(found.name, style="bold")
    stdout.print(verdict.sentence, style=COLOURS[verdict.outcome], soft_wrap=True)
    stdout.print(verdict.recommendation, soft_wrap=True)
    if verdict.table:
        stdout.print(rich_table(verdict, stdout))
    for line in verdict.facts():
        stdout.print(line, soft_wrap=True)
    for piece in verdict.evidence:
        stdout.print(f"{piece.name}: {piece.finding}", soft_wrap=True)
        stdout.print(f"    {piece.proves} {piece.limits}", style="dim", soft_wrap=True)
    for note in verdict.notes:
        stdout.print(f"note: {note}", soft_wrap=True)
    stdout.print(f"figure: {found.figure}\n", soft_wrap=True)


def rich_table(verdict: Verdict, console: Console) -> Table:
    """With as many columns as the console is wide enough for: a number that is cut off would be another number."""
    made = verdict_table(verdict)
    table = _with_columns(made, ())
    for left_out in (FIRST_TO_GO[:n] for n in range(1, len(FIRST_TO_GO) + 1)):
        if console.measure(table, options=console.options.update(width=WIDE)).maximum <= console.width:
            break
        table = _with_columns(made, left_out)
    return table


def _with_columns(made: VerdictTable, left_out: Sequence[str]) -> Table:
    """Solvers that count for the rule in full colour, those too coarse to count dimmed."""
    kept = [i for i, name in enumerate(made.titles) if i < 2 or name not in left_out]
    advice = f"for {', '.join(left_out)}: a wider terminal, or --json" if left_out else None
    caption = "\n".join(line for line in (made.legend, advice) if line is not None)
    table = Table(*(Column(made.titles[i], overflow="fold") for i in kept), caption=caption or None)
    for row in (*made.rows, made.flow):
        if row is made.flow:
            table.add_section()
        strong = row.own or row is made.flow
        cells = (f"{row.name} {row.mark}".rstrip(), *row.cells)
        table.add_row(*(cells[i] for i in kept), style="bold" if strong else None if row.counts else "dim")
    return table


def _exit_code(verdicts: Sequence[Verdict]) -> int:
    """That of the worst of all."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return EXIT_CODES[next(outcome for outcome in WORST_FIRST if outcome in outcomes)]


def _targets(target: str, seed: int | None, figure: Path | None, device: str | None) -> Iterator[Target]:
    if ":" in target and not Path(target).exists():
        if seed is not None:
            raise UsageError("--seed chooses a member of a run, but a function was given")
        if device is not None:
            raise UsageError("--device is where a run's model goes, but a function was given: let it place its model")
        model, batches, real = _call(target)
        yield Target(target, model, batches, figure or Path("audit.png"), {"model": target}, data=real, users=True)
        return
    if not Path(target).exists():
        raise RunError(
            f"{target} does not exist: name a folder that `windermere train --out` has written, or a function that "
            "returns a model and batches, as package.module:function"
        )
    yield from _members(Path(target), seed, figure, check_device(device))


def _members(path: Path, seed: int | None, figure: Path | None, device: str) -> Iterator[Target]:
    """Every seed of a run, on its own test set."""
    trained = trained_ensemble(path, device=device)
    seeds = trained.config.seeds
    if seed is not None and seed not in seeds:
        raise UsageError(f"{path} has no seed {seed}: it has {', '.join(map(str, seeds))}")
    test = data_sets.load(trained.config.data, seed=trained.config.data_seed).test
    chosen = [s for s in seeds if seed in (None, s)]
    for s in chosen:
        name = f"audit-seed{s}.png" if len(seeds) > 1 else "audit.png"
        place = (
            path / name
            if figure is None
            else figure.with_stem(f"{figure.stem}-{s}" if len(chosen) > 1 else figure.stem)
        )
        if len(chosen) > 1:
            stderr.print(f"auditing seed {s} ...", highlight=False)
        model = trained.member(seeds.index(s))
        about = {"model": str(path), "data": f"{trained.config.data}, test set", "seed": s}
        name = f"{path}, seed {s}" if len(seeds) > 1 else str(path)
        yield Target(name, model, test, place, seed=s, about=about)


def _told(error: BaseException) -> str:
    """What was raised, and in which line of the user's own code: a sentence has no traceback."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{describe_error(error)}{where}"


def _is_users(file: str) -> bool:
    """Neither ours, nor Python's or an installed package's."""
    others = (windermere.__path__[0], *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
    return not file.startswith(("<", *others))


def _call(target: str) -> tuple[Any, Any, Any]:
    """The model and batches, or the sampler, noise and real samples, that package.module:function returns; modules of
    the current folder are found too."""
    here = os.getcwd()  # the user's code may go elsewhere
    sys.path.insert(0, here)
    try:
        with redirect_stdout(sys.stderr):
            made = _function(target)()
    except WindermereError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise AuditError(f"{target} could not be called: {_told(error)}") from error
    finally:
        sys.path.remove(here)
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise AuditError(
            f"{target} must return a model and batches, or a sampler, noise and data, not {type(made).__name__}"
        )
    return (*made, None) if len(made) == 2 else made


def _function(target: str) -> Callable[[], Any]:
    module, _, name = target.partition(":")
    if not module or not name:
        raise UsageError(f"{target} could not be called: name both a module and a function, package.module:function")
    if "/" in module or module.startswith("."):
        raise UsageError(
            f"{target} could not be called: a module is not named by a path: go to its folder and give "
            f"{Path(module).stem}:{name}"
        )
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # one that the user's module asks for
        advice = "leave out the .py" if module.endswith(".py") else "go to its folder, or install it"
        raise UsageError(f"{target} could not be called: there is no module '{module}' here: {advice}") from error
    if not callable(found):
        raise UsageError(f"{target} could not be called: the module '{module}' has no function '{name}'")
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise UsageError(f"{target} could not be called: let it take no arguments ({error})") from error
    except ValueError:  # of what is written in C nothing may be known
        pass
    return found  # type: ignore[no-any-return]
