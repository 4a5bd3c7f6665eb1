"""The study's numbers as tables of text, for the pages that show them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

from windermere.paper.studies.tied_sampler.findings import NAMES, SETTINGS, constant, of_setting
from windermere.paper.studies.tied_sampler.rows import JudgedRow, OpinionRow, TunedRow
from windermere.paper.studies.tied_sampler.runs import CONTROLLERS, LONG, LONGER, LOSSES, MATCHING

JUDGED = ("own solver", "flow", "tied", "not sure", "harmed")
COLUMNS, STAGES = ("seeds", *JUDGED, "audits"), ("own_before", "flow_before", "own", "flow")
CONTROLLED = ("evaluations", "steps at the end")


def numbers(rows: Sequence[TunedRow]) -> str:
    """A table for each setting and loss, with those of controllers; means over seeds."""
    lines = list[str]()
    for data, network in SETTINGS:
        for loss in (*LOSSES, MATCHING):
            name = "flow matching goes on" if loss == MATCHING else loss
            lines += _of_setting(of_setting(rows, data, network, loss), f"{NAMES[data]}, {NAMES[network]}, {name}")
    for loss in LOSSES:
        long = [row for row in rows if row.loss == loss and row.run.endswith(LONG)]
        lines += _of_setting(long, f"{NAMES[SETTINGS[0][0]]}, {NAMES[SETTINGS[0][1]]}, {loss}, {LONGER} times as long")
    return "\n".join(lines)


def _of_setting(rows: Sequence[TunedRow], title: str) -> Iterator[str]:
    if not rows:
        return
    before = [row.flow_before for row in {row.seed: row for row in rows}.values()]
    yield from (f"**{title}.** The flow before: {_spread(before)}.", "", *_head("tuned through", *COLUMNS))
    for method in ("euler", "midpoint"):
        for steps, some in constant(rows, method).items():
            yield _line(f"{method} {steps}", some)
    yield ""
    found = {name: [row for row in rows if row.through == name] for name in CONTROLLERS}
    if any(found.values()):
        yield from _head("controller", *COLUMNS, *CONTROLLED)
        for name, some in found.items():
            if some:
                ends = " to ".join(map(str, sorted({min(row.steps for row in some), max(row.steps for row in some)})))
                yield f"{_line(name, some)} {fmean(row.evaluations for row in some):.1f} | {ends} |"
        yield ""


def _head(*columns: str) -> tuple[str, str]:
    return f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"


def _line(name: str, rows: Sequence[TunedRow]) -> str:
    audits = ", ".join(f"{count} {outcome}" for outcome, count in sorted(Counter(row.audit for row in rows).items()))
    own, flow = (_spread(values) for values in ([row.own for row in rows], [row.flow for row in rows]))
    cells = (name, len(rows), own, flow, *_counts(rows), audits)
    return f"| {' | '.join(map(str, cells))} |"


def _counts(rows: Sequence[JudgedRow]) -> list[int]:
    """Who is tied, not sure, and harmed."""
    told = ((row.tied is True, row.tied is None, row.harmed is True) for row in rows)
    return [sum(each) for each in zip(*told, strict=True)]


def _spread(values: Sequence[float]) -> str:
    """The mean, and the least and the most."""
    return f"{fmean(values):.2g} ({min(values):.2g} to {max(values):.2g})"


def opinions(rows: Sequence[OpinionRow]) -> str:
    """A table for each of the other yardsticks; means over seeds."""
    lines = list[str]()
    for yardstick in dict.fromkeys(row.yardstick for row in rows):
        mine = [row for row in rows if row.yardstick == yardstick]
        lines += (f"**Judged by {yardstick} alone.**", "", *_head("run", "seeds", "own before", "flow before", *JUDGED))
        for run in dict.fromkeys(row.run for row in mine):
            some = [row for row in mine if row.run == run]
            values = (_spread([getattr(row, what) for row in some]) for what in STAGES)
            lines.append(f"| {' | '.join(map(str, (run, len(some), *values, *_counts(some))))} |")
        lines.append("")
    return "\n".join(lines)
