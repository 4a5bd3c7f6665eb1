"""Critical numbers of steps by several rules, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from windermere.paper.studies.critical import CLASSES, PRINTED, rate_apart
from windermere.paper.studies.critical_findings import RULES, Scored, bracket, on_the_test_set, on_training_batches
from windermere.paper.studies.critical_rows import CHECKS, CheckRow
from windermere.paper.studies.rows import Table, Tables
from windermere.paper.studies.study import data_name
from windermere.paper.studies.table1_lines import Line, Table1Row, lines

BORROWED = Table("table1", Table1Row)
"""Its models on the test set, where this study has none of its own, or of fewer numbers of steps."""
WORDS = """\
**Critical numbers of steps by several rules**, of models that were trained with constant steps: the largest number that
fails, and the smallest from which on all pass. Own and check solver are compared on the test set, or on training
batches as Algorithm 2 does (the whole ones of an epoch, with the weights at the end of training). On the test set they
are Table 1's models, where that has more numbers of steps. The printed brackets are {printed}. Not scored yet: the
study `critical-steps`, run on a GPU, trains and scores these.
"""
Column = tuple[str, Sequence[Scored], Sequence[Scored]]
"""What a column is about, and its models on the test set and on training batches."""
Grids = Mapping[tuple[str, float], Sequence[Scored]]
"""Table 1's models on the test set, by data set and learning rate."""


def text(tables: Tables) -> str:
    grids = {(line.data, line.lr): _of_line(line) for line in lines(tables[BORROWED])}
    columns = [*_own(tables[CHECKS], grids), *_borrowed(grids, tables[CHECKS])]
    if not columns:
        return ""
    heads = ["rule", *(f"{name}: {where}" for name, *_ in columns for where in ("test set", "training batches"))]
    rows = [heads, ["---"] * len(heads)]
    for name, rule in RULES.items():
        rows.append([name, *(bracket(scored, rule)[2] for _, *both in columns for scored in both)])
    printed = ", ".join(f"{data_name(data)} {p.fails}-{p.passes} Euler steps" for data, p in PRINTED.items())
    return "\n".join([WORDS.format(printed=printed), *(f"| {' | '.join(row)} |" for row in rows)])


def _own(rows: Sequence[CheckRow], grids: Grids) -> Iterator[Column]:
    for data, method, lr in dict.fromkeys((row.data, row.method, row.lr) for row in rows if row.steps is not None):
        here = [row for row in rows if (row.data, row.method, row.lr) == (data, method, lr)]
        grid = grids.get((data, lr), []) if method == "euler" else []
        yield _name(data, method, lr), max(on_the_test_set(here), grid, key=len), on_training_batches(here)


def _borrowed(grids: Grids, own: Sequence[CheckRow]) -> Iterator[Column]:
    scored = {(row.data, row.lr) for row in own if row.method == "euler"}
    for (data, lr), grid in grids.items():
        if (data, lr) not in scored:
            yield _name(data, "euler", lr), grid, []


def _of_line(line: Line) -> list[Scored]:
    chance = 1 / CLASSES.get(line.data, 2)
    return [
        Scored(entry.precision, [abs(model.drop) for model in entry.models], fmean(entry.own) - chance)
        for entry in line.entries
    ]


def _name(data: str, method: str, lr: float) -> str:
    words = (data_name(data), "Euler" if method == "euler" else method, rate_apart(data, lr))
    return ", ".join(filter(None, words))
