"""Several seeds of a run beside each other: a row for each, then what holds for which of them."""

from collections.abc import Callable, Mapping, Sequence
from math import isinf

from rich.console import Console
from rich.table import Column, Table

from windermere.auditing import Verdict
from windermere.auditing.wording import BUT
from windermere.cli.console import tell, to_go

TITLES = ("seed", "own", "flow", "gap (95%)", "verdict", "safe")
FIRST_TO_GO = ("gap (95%)", "safe")
"""Where the terminal is narrow: half a number on each of two lines would be no number."""
ROOM_FOR_A_NAME = 12


def show_seeds(verdicts: Mapping[str, Verdict], console: Console) -> None:
    """The table of verdicts by seed, and each advice and note once, with the seeds that it is for."""
    console.print(seeds_table(verdicts, console))
    for kind in (_advice, _notes):
        for text, seeds in _holders(verdicts, kind).items():
            of_all = len(seeds) == len(verdicts)
            whose = "all seeds" if of_all else f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
            tell(f"{whose}: {text}", console=console)


def seeds_table(verdicts: Mapping[str, Verdict], console: Console) -> Table:
    """Scores with its own solver and under the flow, their difference with its interval, the outcome, and a step, as
    far as the console is wide enough for them."""
    # No number is cut, and a solver's name has some room.
    left_out = to_go(FIRST_TO_GO, console, lambda each: _without(verdicts, (*each, "safe")), room=ROOM_FOR_A_NAME)
    return _without(verdicts, left_out)


def _without(verdicts: Mapping[str, Verdict], left_out: Sequence[str]) -> Table:
    """Only a solver's name may go on in the next line."""
    (metric,) = {verdict.metric for verdict in verdicts.values()}
    kept = [i for i, title in enumerate(TITLES) if title not in left_out]
    missing = f"\nfor {', '.join(left_out)}: a wider terminal, or --json" if left_out else ""
    columns = (Column(TITLES[i], overflow="fold", no_wrap=TITLES[i] != "safe") for i in kept)
    table = Table(*columns, caption=f"own and flow: {metric}{missing}")
    for seed, verdict in verdicts.items():
        cells = (seed, *_cells(verdict))
        table.add_row(*(cells[i] for i in kept))
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
    """An undecided verdict's reason is in its sentence, and so is that a score is no better than chance."""
    if verdict.outcome == "UNDECIDED":
        return (f"{verdict.sentence} {verdict.recommendation}",)
    restriction = verdict.sentence.partition(BUT)[2]
    return (f"{restriction[:1].upper()}{restriction[1:]} {verdict.recommendation}".strip(),)


def _notes(verdict: Verdict) -> tuple[str, ...]:
    return tuple(f"note: {note}" for note in verdict.notes)
