"""Numbers of README.md and docs/, computed once more from `results/` and `benchmarks/results/`, with code of its own.

    python -m benchmarks.recompute          # exits with 1 if a page says another number than its tables do

It reads CSV and JSON files with the standard library and imports nothing of windermere, so that an error there cannot
hide here. A function with `@of_page` yields sentences as they must stand on its page, with the numbers that belong
there: `("{:.1f} evaluations", 61.5)`. What is not found is a mismatch. To check more numbers, write one more such
function, in one of `FILES` or in a file of your own that is named there.
"""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import atan, cos, log2, pi, sqrt
from pathlib import Path
from statistics import fmean, stdev
from string import Formatter
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS, BENCHMARKS = ROOT / "results", ROOT / "benchmarks" / "results"
FILES = tuple(
    f"benchmarks.recompute_{name}"
    for name in ("grids", "adaptation", "studies", "recipes", "scale", "speed", "tables", "images", "audits")
)
"""The modules with sentences."""
Sentence = tuple[Any, ...]
"""A template, and the values for its places."""
Row = Mapping[str, str]
PAGES: list[tuple[str, Callable[[], Iterator[Sentence]]]] = []


def of_page(page: str) -> Callable[[Callable[[], Iterator[Sentence]]], Callable[[], Iterator[Sentence]]]:
    """Registers sentences of a page, by its path from the root."""

    def register(sentences: Callable[[], Iterator[Sentence]]) -> Callable[[], Iterator[Sentence]]:
        PAGES.append((page, sentences))
        return sentences

    return register


@dataclass(frozen=True)
class Checked:
    """A sentence with its numbers, and whether its page has it."""

    page: str
    text: str
    numbers: int
    found: bool


@cache
def rows(study: str, table: str = "table") -> list[Row]:
    with (RESULTS / study / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def benchmark(name: str) -> Any:
    return json.loads((BENCHMARKS / f"{name}.json").read_text())


@cache
def page_text(page: str) -> str:
    """With any white space as one blank, so that it does not matter where lines are broken."""
    return " ".join((ROOT / page).read_text().split())


def checked() -> Iterator[Checked]:
    for name in FILES:
        import_module(name)
    for page, sentences in PAGES:
        for template, *values in sentences():
            text = " ".join(template.format(*values).split())
            places = sum(field is not None for _, field, _, _ in Formatter().parse(template))
            yield Checked(page, text, places, text in page_text(page))


# ---------------------------------------------------------------------------------------------------------
# What several sentences need


def numbers(of: Iterable[Row], column: str) -> list[float]:
    """A column; what is empty counts as zero."""
    return [float(row[column] or 0) for row in of]


def p_value(t: float, freedom: float) -> float:
    """Two-sided, of Student's t: its density is integrated by Simpson's rule, in u = arctan(t / sqrt(freedom))."""
    end, n = atan(abs(t) / sqrt(freedom)), 4000
    heights = [cos(end + (pi / 2 - end) * k / n) ** (freedom - 1) for k in range(n + 1)]
    whole = [cos(pi / 2 * k / n) ** (freedom - 1) for k in range(n + 1)]
    return _simpson(heights, (pi / 2 - end) / n) / _simpson(whole, pi / 2 / n)


def _simpson(heights: Sequence[float], width: float) -> float:
    inner = 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
    return (heights[0] + inner + heights[-1]) * width / 3


def welch_p(one: tuple[float, float, int], other: tuple[float, float, int]) -> float:
    """The p-value of Welch's test of two means, each with its spread and its size."""
    parts = [spread**2 / size for _, spread, size in (one, other)]
    freedom = sum(parts) ** 2 / sum(part**2 / (size - 1) for part, (*_, size) in zip(parts, (one, other), strict=True))
    return p_value((one[0] - other[0]) / sqrt(sum(parts)), freedom)


def variance_p(groups: Sequence[Sequence[float]]) -> float:
    """The p-value of an analysis of variance: the tail of F's distribution is one of a beta distribution."""
    size = sum(map(len, groups))
    middle, between, within = fmean(x for of in groups for x in of), len(groups) - 1, size - len(groups)
    explained = sum(len(of) * (fmean(of) - middle) ** 2 for of in groups)
    left = sum((x - fmean(of)) ** 2 for of in groups for x in of)
    n, start = 4000, explained / (explained + left)
    whole, tail = (
        [
            (low + (1 - low) * k / n) ** (between / 2 - 1) * ((1 - low) * (1 - k / n)) ** (within / 2 - 1)
            for k in range(n + 1)
        ]
        for low in (0.0, start)
    )
    return _simpson(tail, (1 - start) / n) / _simpson(whole, 1 / n)


def one_sample_p(values: Sequence[float], expected: float = 0.0) -> float:
    return p_value((fmean(values) - expected) / (stdev(values) / sqrt(len(values))), len(values) - 1)


def words_of_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def spread(values: Sequence[float]) -> str:
    mean = round(fmean(values), 3) + 0.0
    return f"{mean:.3f} ± {stdev(values):.3f}" if len(values) > 1 else f"{mean:.3f} (one seed)"


def log_mean(values: Iterable[float]) -> float:
    return 2 ** fmean(map(log2, values))


def main() -> int:
    found = list(checked())
    for one in found:
        if not one.found:
            print(f"{one.page} does not say: {one.text}")
    count = sum(one.numbers for one in found)
    missing = sum(not one.found for one in found)
    print(f"{count} numbers in {len(found)} sentences recomputed; {missing} sentences are not on their page")
    return 1 if missing else 0


if __name__ == "__main__":
    from benchmarks import recompute  # the one that the modules with sentences import

    sys.exit(recompute.main())
