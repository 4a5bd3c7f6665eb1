"""The table of a verdict, made once for all who show it: a row for each solver that was tried, and the flow's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windermere.report.numbers import Digits, rough, share
from windermere.report.words import OF_FLOW_ALONE

if TYPE_CHECKING:
    from windermere.auditing.verdict import Line, Verdict

FLOW_ITSELF = "the flow itself"
LEGEND = "* at least as accurate as its own solver"
LOOKED_AT = ": the verdict looks at these"
READING = {
    "as own, as flow": "the share of samples that are judged as with its own solver, and as under the flow",
    "as flow": "the share of samples that are judged as under the flow",
    "error": "the distance from the flow, in the median",
    "evals": "evaluations of the field",
}
"""What stands in the columns."""
TITLES = ("as own", "as flow", "error", "evals")
"""After the metric's name."""
WIDTHS = (9, 9, 10, 8)
FAILED = ("failed", "", "", "", "")


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One solver in words and numbers."""

    solver: str
    cells: tuple[str, ...]
    """The mean score, then as in `TITLES`."""
    counts: bool
    """Whether the rule looks at it: it is marked then."""
    own: bool = False
    """Whether it is the model's own solver."""
    failed: str | None = None

    @property
    def name(self) -> str:
        return f"{self.solver} (own)" if self.own else self.solver

    @property
    def mark(self) -> str:
        return "*" if self.counts else " "


@dataclass(frozen=True, kw_only=True)
class VerdictTable:
    metric: str
    rows: tuple[TableRow, ...]
    flow: TableRow
    of_flow_alone: bool = False
    """Whether the verdict looks at the flow alone."""

    @property
    def titles(self) -> tuple[str, ...]:
        return ("solver", self.metric, *TITLES)

    @property
    def legend(self) -> str | None:
        """What the mark means, None where no row has one."""
        words = LEGEND if self.of_flow_alone else LEGEND + LOOKED_AT
        return words if any(row.counts for row in self.rows) else None

    def lines(self) -> list[str]:
        """As plain text."""
        rows = (*self.rows, self.flow)
        name = max(24, *(len(row.name) for row in rows))
        widths = (max(10, len(self.metric) + 2), *WIDTHS)
        title = f"{'solver':<{name}}  {_align(self.titles[1:], widths)}"
        legend = [] if self.legend is None else [self.legend]
        return [title, *(_line(row, name, widths) for row in rows), *legend, reading(TITLES)]


def reading(titles: Sequence[str]) -> str:
    """What stands in these columns, in words."""
    names = {"as own, as flow": "as own" in titles, "as flow": "as flow" in titles and "as own" not in titles}
    return "; ".join(f"{name}: {words}" for name, words in READING.items() if names.get(name, name in titles))


def verdict_table(verdict: "Verdict") -> VerdictTable:
    rows = tuple(_row(line, line.solver == verdict.own.solver, verdict.digits) for line in verdict.table)
    alone = verdict.kind in OF_FLOW_ALONE
    return VerdictTable(metric=verdict.metric, rows=rows, flow=_flow_row(verdict), of_flow_alone=alone)


def _row(line: "Line", own: bool, digits: Digits) -> TableRow:
    if line.failed is not None:
        return TableRow(solver=line.solver, cells=FAILED, counts=False, own=own, failed=line.failed)
    shares = share(line.agreement_own), share(line.agreement_reference)
    cells = digits(line.metric), *shares, rough(line.error), str(line.evaluations)
    return TableRow(solver=line.solver, cells=cells, counts=line.counts, own=own)


def _flow_row(verdict: "Verdict") -> TableRow:
    flow = verdict.reference
    shares = share(verdict.agreement), share(1.0 if flow.converged else None)
    error = rough(flow.error if flow.converged else None)
    return TableRow(solver=FLOW_ITSELF, cells=(verdict.digits(flow.metric), *shares, error, ""), counts=False)


def _line(row: TableRow, name: int, widths: tuple[int, ...]) -> str:
    if row.failed is not None:
        return f"{row.name:<{name}}    failed: {row.failed}"
    return f"{row.name:<{name}} {row.mark}{_align(row.cells, widths)}"


def _align(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
