"""What Table 1 says of the paper's claims, line by line."""

from collections.abc import Iterator
from math import log2
from statistics import fmean

from windermere.paper.studies.adaptation_findings import SAME_ACCURACY, SAME_COST, by_seed, percent
from windermere.paper.studies.critical import PRINTED, Entry
from windermere.paper.studies.grid_findings import within_a_factor_of_two
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.statistics import Sample, against, is_same, judged, told, welch
from windermere.paper.studies.study import ONE_SEED, Finding, seed_count
from windermere.paper.studies.table1_lines import TABLE, Line, lines


def findings(tables: Tables) -> list[Finding]:
    return [finding for line in lines(tables[TABLE]) for finding in _findings(line)]


def _findings(line: Line) -> Iterator[Finding]:
    if line.entries:
        yield _bracket_finding(line)
    if line.critical is None:
        return
    yield _grid_accuracy_finding(line, line.critical)
    if line.adapted:
        yield _accuracy_finding(line, line.critical)
        yield _cost_finding(line, line.critical)


def _found(line: Line, claim: str, ours: str, agrees: bool | None, *seeds: int) -> Finding:
    apart = line.apart or (ONE_SEED if 1 in seeds else "")
    return Finding(claim=claim, ours=ours, agrees=agrees if line.whole else None, case=line.name, apart=apart)


def _bracket_finding(line: Line) -> Finding:
    critical, printed, entries = line.critical, PRINTED[line.data], line.entries
    return _found(
        line,
        "a grid search over Euler steps, tested on the test set, finds the printed critical number, within a "
        "factor of two",
        f"{line.bracket} (printed: {printed.fails}-{printed.passes}), of {entries[0].precision:g} to "
        f"{entries[-1].precision:g} steps ({seed_count(*(len(entry.own) for entry in entries))})",
        within_a_factor_of_two(line.fails, critical.precision if critical else None, printed),
    )


def _grid_accuracy_finding(line: Line, critical: Entry) -> Finding:
    own, printed = critical.own, PRINTED[line.data]
    same, tests = is_same(own, printed.grid, SAME_ACCURACY)
    return _found(
        line,
        "the accuracy of the coarsest run that passes is as printed",
        f"{percent(own)} with {critical.precision:g} steps ({seed_count(len(own))}) where {printed.grid} is printed"
        + (f" ({tests})" if tests else ""),
        same,
        len(own),
    )


def _accuracy_finding(line: Line, critical: Entry) -> Finding:
    own, adapted = critical.own, line.adapted
    behind, tested = welch(Sample.of(own), Sample.of(adapted)), min(len(own), len(adapted)) > 1
    return _found(
        line,
        "Algorithm 2 is as accurate as the coarsest run that passes, without a search",
        f"{percent(adapted)} against {percent(own)} ({len(adapted)} and {len(own)} seeds"
        + (f"; no more than a point below: {told(behind.below(SAME_ACCURACY))})" if tested else ")"),
        judged(behind.below(SAME_ACCURACY), behind.above(SAME_ACCURACY)) if tested else behind.value <= SAME_ACCURACY,
        len(own),
        len(adapted),
    )


def _cost_finding(line: Line, critical: Entry) -> Finding:
    costs, steps = line.costs, critical.precision
    dearer, tested = against(list(map(log2, costs)), log2(steps)), len(costs) > 1
    return _found(
        line,
        "Algorithm 2 costs no more than the coarsest run that passes",
        f"{fmean(costs):.1f} evaluations per iteration ({by_seed(costs)}) against {steps:g}"
        + (f" (by no more than a quarter: {told(dearer.below(SAME_COST))})" if tested else ""),
        judged(dearer.below(SAME_COST), dearer.above(SAME_COST)) if tested else dearer.value <= SAME_COST,
        len(costs),
    )
