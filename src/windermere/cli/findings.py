"""What `windermere study run` says in the end: the paper's claims, and what was found of each."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from windermere.cli.console import tell
from windermere.paper.studies.judging import NOTES, word
from windermere.paper.studies.study import Finding

VERBS = {True: ("agrees", "agree"), False: ("differs", "differ"), None: ("is open", "are open")}


def tell_findings(findings: Sequence[Finding], folder: Path) -> None:
    """Every claim once, below it what was found of each of its cases, and in the end how many agree."""
    for claim in dict.fromkeys(finding.claim for finding in findings):
        cases = [finding for finding in findings if finding.claim == claim]
        tell(f"{'beyond the paper' if cases[0].beyond else 'the paper'}: {claim}")
        for finding in cases:
            tell(f"{word(finding)}: {_case(finding)}{finding.ours}", indent=2)
    judged = Counter(finding.agrees for finding in findings if not finding.beyond and not finding.apart)
    apart = [finding.apart for finding in findings if not finding.beyond and finding.apart]
    if parts := [*([_count(judged)] if judged else []), *([_count_apart(apart)] if apart else [])]:
        tell("; ".join(parts))
    if judged[False] and (folder / NOTES).exists():
        tell(f"why we think it differs: {folder / NOTES}")


def _case(finding: Finding) -> str:
    return f"{finding.case}: " if finding.case else ""


def _count(judged: Counter[bool | None]) -> str:
    total = judged.total()
    parts = [f"{judged[agrees]} {VERBS[agrees][judged[agrees] > 1]}" for agrees in VERBS if judged[agrees]]
    return f"of {total} {'findings' if total > 1 else 'finding'}, {', '.join(parts)}"


def _count_apart(reasons: Sequence[str]) -> str:
    return f"{len(reasons)} counted apart ({', '.join(dict.fromkeys(reasons))})"


def files(folder: Path, drawn: Sequence[Path]) -> str:
    """One line: the folder, and the figures in it."""
    return f"files: {folder}{': ' if drawn else ''}{', '.join(path.name for path in drawn)}"
