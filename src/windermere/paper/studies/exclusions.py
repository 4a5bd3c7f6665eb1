"""Claims about grids with and without the seeds that did not train."""

from collections.abc import Mapping, Sequence

from windermere.paper.studies.judging import word
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.study import Finding, Study

HEAD = """\
## With and without the seeds that did not train

Grids are averaged over the seeds that trained, and whether a seed trains may depend on the very precision that is
looked at. So here are the claims about grids of which seeds were left out, judged three times. A seed that diverged
counts as guessing, under any solver.
"""
OTHERWISE = ("every seed", "these seeds nowhere")


def exclusions(studies: Sequence[Study], tables: Mapping[str, Tables]) -> list[str]:
    """The claims of studies with seeds that did not train, judged without them, with them, and without these seeds at
    all; a seed that trains with some precisions only is counted where these help it."""
    lines = list[str]()
    for study in studies:
        here, others = study.findings(tables[study.name]), study.otherwise(tables[study.name])
        for finding in here if others else ():
            same = [same_claim(found, finding) for found in others.values()]
            if all(other is None or other.ours == finding.ours for other in same):
                continue  # no seed of this grid was left out
            lines.append(table_row(claim_of(finding), *map(judged_briefly, (finding, *same))))
    if not lines:
        return []
    heads = table_row("claim", "seeds that trained", *OTHERWISE)
    return ["\n".join([HEAD, heads, "|---" * (len(OTHERWISE) + 2) + "|", *lines, ""])]


def same_claim(found: Sequence[Finding], wanted: Finding) -> Finding | None:
    """The finding that is about the same."""
    return next((one for one in found if (one.claim, one.case) == (wanted.claim, wanted.case)), None)


def claim_of(finding: Finding) -> str:
    return f"{finding.case}: {finding.claim}" if finding.case else finding.claim


def judged_briefly(finding: Finding | None) -> str:
    if finding is None:
        return "no seed is left"
    return f"**{word(finding)}**: {finding.brief or finding.ours}"


def table_row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
