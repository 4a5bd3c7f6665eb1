"""Several seeds of a run beside each other: a row for each, then what holds for which of them."""

from collections.abc import Callable, Mapping
from math import isinf

from rich.console import Console
from rich.table import Column, Table

from windermere.auditing import Verdict

TITLES = ("seed", "own", "flow", "gap (95%)", "verdict", "safe")


def show_seeds(verdicts: Mapping[str, Verdict], console: Console) -> None:
    """The table of verdicts by seed, and each advice and note once, with the seeds that it is for."""
    console.print(seeds_table(verdicts))
    for kind in (_advice, _notes):
        for text, seeds in _holders(verdicts, kind).items():
            of_all = len(seeds) == len(verdicts)
            whose = "all seeds" if of_all else f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
            console.print(f"{whose}: {text}", soft_wrap=True)


def seeds_table(verdicts: Mapping[str, Verdict]) -> Table:
    """Scores with its own solver and under the flow, their difference with its interval, the outcome, and a step."""
    (metric,) = {verdict.metric for verdict in verdicts.values()}
    table = Table(*(Column(title, overflow="fold") for title in TITLES), caption=f"own and flow: {metric}")
    for seed, verdict in verdicts.items():
        table.add_row(seed, *_cells(verdict))
    return table


def _holders(verdicts: Mapping[str, Verdict], told: Callable[[Verdict], tuple[str, ...]]) -> dict[str, list[str]]:
    """Every text that verdicts tell, with the seeds that tell it."""
    found: dict[str, list[str]] = {}
    for seed, verdict in verdicts.items():
        for text in told(verdict):
            found.setdefault(text, []).append(seed)
    return found


def _cells(verdict: Verdict) -> tuple[str, ...]:
    digits, gap = verdict.digits, verdict.gap
    apart = "-"
    if gap is not None:
        # A ratio of errors has no sign, and is as many times the own one.
        value, low, high = (digits(x, signed=not gap.ratio) for x in (gap.value, gap.low, gap.high))
        told = "no interval" if isinf(gap.low) or isinf(gap.high) else f"{low} to {high}"
        apart = f"{'x ' if gap.ratio else ''}{value} ({told})"
    own, flow = digits(verdict.own.metric), digits(verdict.reference.metric)
    return own, flow, apart, str(verdict.outcome), verdict.safe.solver or "-"


def _advice(verdict: Verdict) -> tuple[str, ...]:
    """An undecided verdict's reason is in its sentence."""
    undecided = verdict.outcome == "UNDECIDED"
    return (f"{verdict.sentence} {verdict.recommendation}" if undecided else verdict.recommendation,)


def _notes(verdict: Verdict) -> tuple[str, ...]:
    return tuple(f"note: {note}" for note in verdict.notes)
