"""What `windermere audit` does."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Column, Table

from windermere.auditing import Outcome, Verdict, audit
from windermere.auditing.options import as_question, check_samples
from windermere.auditing.saving import record_of, save_records
from windermere.auditing.sets.distance import KINDS
from windermere.auditing.table import VerdictTable, reading, verdict_table
from windermere.cli.advice import in_flags
from windermere.cli.console import print_json, stderr, stdout, tell, to_go
from windermere.cli.places import check_page, check_place
from windermere.cli.seeds_table import show_seeds
from windermere.cli.targets import Target, targets_of, told
from windermere.cli.terminal import audit_progress
from windermere.errors import AuditError, UsageError, WindermereError, is_out_of_memory
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


def limit_of(samples: int | None, everything: bool) -> int | None:
    """How many samples to draw; None takes all."""
    if everything and samples is not None:
        raise UsageError("--samples says how many to draw, and --all takes them all: leave one of the two out")
    check_samples(samples)
    return None if everything else SAMPLES if samples is None else samples


def audit_target(
    target: str,
    asked: Mapping[str, Any],
    *,
    samples: int | None,
    seed: int | None,
    figure: Path | None,
    html: Path | None,
    device: str | None,
    as_json: bool,
    verbose: bool,
) -> NoReturn:
    """Every model that the target names, one after the other, as `audit` is asked; the exit code is the worst
    verdict's."""
    if asked["metric"] not in (ENERGY, *KINDS):  # of which only the model, or the data, can say more
        as_question(asked["metric"], asked["threshold"], asked["outputs"])
    if figure is not None:
        check_place(figure_path(figure), "figure", "figure")
    if html is not None:
        check_page(html, "html")
    audited: list[tuple[Target, Verdict]] = []
    records: list[dict[str, Any]] = []
    for found in targets_of(target, seed, figure, device):
        if not found.users and (asked["batch_axis"] is not None or asked["shared"]):
            raise UsageError("--batch-axis and --shared are for a function's model: a run's takes its data as it is")
        check_place(found.figure, "figure", "figure")
        verdict = _audited(found, samples=samples, **asked)
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
            f"{found.name} could not be audited, since its model or batches raise {told(error)}: mend that, or call "
            "windermere.audit in Python to see where it comes from"
        ) from error


def _in_flags(verdict: Verdict) -> Verdict:
    """Its sentence may advise arguments, which the command line has as flags."""
    flow = replace(verdict.reference, reason=verdict.reference.reason and in_flags(verdict.reference.reason))
    notes = tuple(in_flags(note) for note in verdict.notes)
    return replace(verdict, sentence=in_flags(verdict.sentence), reference=flow, notes=notes)


def _show(found: Target, verdict: Verdict) -> None:
    """The verdict in a sentence, the solvers as a table, and the evidence with what it proves."""
    tell(found.name, style="bold")
    tell(verdict.sentence, style=COLOURS[verdict.outcome])
    tell(verdict.recommendation)
    if verdict.table:
        stdout.print(rich_table(verdict, stdout))
    for line in verdict.facts():
        tell(line)
    for piece in verdict.evidence:
        tell(f"{piece.name}: {piece.finding}")
        tell(f"{piece.proves} {piece.limits}", indent=4, style="dim")
    for note in verdict.notes:
        tell(f"note: {note}")
    stdout.print(f"figure: {found.figure}\n", soft_wrap=True)


def rich_table(verdict: Verdict, console: Console) -> Table:
    """With as many columns as the console is wide enough for: a number that is cut off would be another number."""
    made = verdict_table(verdict)
    return _with_columns(made, to_go(FIRST_TO_GO, console, partial(_with_columns, made)))


def _with_columns(made: VerdictTable, left_out: Sequence[str]) -> Table:
    """Solvers that count for the rule in full colour, those too coarse to count dimmed."""
    kept = [i for i, name in enumerate(made.titles) if i < 2 or name not in left_out]
    advice = f"for {', '.join(left_out)}: a wider terminal, or --json" if left_out else None
    caption = "\n".join(line for line in (made.legend, reading([made.titles[i] for i in kept]), advice) if line)
    table = Table(*(Column(made.titles[i], overflow="fold") for i in kept), caption=caption or None)
    for row in (*made.rows, made.flow):
        if row is made.flow:
            table.add_section()
        strong = row.own or row is made.flow
        cells = (f"{row.name} {row.mark}".rstrip(), *row.cells)
        table.add_row(*(cells[i] for i in kept), style="bold" if strong else None if row.counts else "dim")
    return table


def _exit_code(verdicts: Sequence[Verdict]) -> int:
    """The exit code of the worst verdict of all."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return EXIT_CODES[next(outcome for outcome in WORST_FIRST if outcome in outcomes)]
