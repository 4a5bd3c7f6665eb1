"""Claims that rest on more seeds than the paper's five: judged on those, on the seeds that came later alone, and on
all of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from windermere.paper.studies.exclusions import claim_of, judged_briefly, same_claim, table_row
from windermere.paper.studies.rows import RunRow, Tables, of_seeds
from windermere.paper.studies.study import SEEDS, Finding, Study

HEAD = """\
## With more than five seeds

Five seeds, the paper's number, left some claims about spheres open, or close to a limit. So the next seeds in order
were trained there. How many was decided before any of them was trained: 25 (seeds 5 to 29) for 32, 64 and 128 Euler
steps in [critical-steps](#critical-steps), ten (5 to 14) for Euler's steps on [Sphere3](#sphere3-fixed) and for those
of rk4 on [Sphere2](#sphere2-fixed), fifteen (5 to 19) for Euler's on [Sphere10](#sphere10-fixed), five (5 to 9)
elsewhere. That was a second look, taken since the first did not tell: a test on all seeds counts the first look again,
and is surer of itself than it should be. A test on the fresh seeds alone is not. Claims about a whole grid stay open
for these where they were not trained with all of its entries.
"""
Thrice: TypeAlias = tuple[Finding | None, Finding, Finding]
"""A claim by the first seeds, by later ones, and by all."""
COLUMNS = ("seeds 0 to 4", "fresh seeds alone", "all seeds")


def fresh_seeds(studies: Sequence[Study], tables: Mapping[str, Tables]) -> list[str]:
    """The claims of the paper that are judged otherwise by the seeds beyond five, or by all."""
    some = [study for study in studies if _any_fresh(tables[study.name][study.main])]
    found = [thrice for study in some for thrice in _thrice(study, tables[study.name])]
    if not found:
        return []
    apart = [thrice for thrice in found if len({finding and finding.agrees for finding in thrice}) > 1]
    heads = [table_row("claim", *COLUMNS), "|---" * (len(COLUMNS) + 1) + "|"]
    rows = [table_row(claim_of(every), *map(judged_briefly, (first, fresh, every))) for first, fresh, every in apart]
    alike = f"The others that rest on more seeds, {len(found) - len(apart)}, are judged alike all three times."
    return ["\n".join([HEAD, *([*heads, *rows, ""] if rows else ()), alike, ""])]


def _any_fresh(rows: Sequence[Any]) -> bool:
    return any(isinstance(row, RunRow) and is_fresh(row.seed) for row in rows)


def is_first(seed: int) -> bool:
    return seed in SEEDS


def is_fresh(seed: int) -> bool:
    return seed not in SEEDS


def _thrice(study: Study, tables: Tables) -> Iterator[Thrice]:
    every = [finding for finding in study.findings(tables) if not finding.beyond]
    if not every:
        return  # a study of ours has as many seeds as it likes
    first, fresh = (study.findings(of_seeds(tables, chosen)) for chosen in (is_first, is_fresh))
    for finding in every:
        before, later = (same_claim(found, finding) for found in (first, fresh))
        if later is not None and (before is None or before.ours != finding.ours):
            yield before, later, finding
