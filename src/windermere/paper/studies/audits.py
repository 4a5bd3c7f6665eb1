"""The audit of every seed of a run: whether each model is a flow, by the library's own rule and not by a mean."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from windermere.auditing import Outcome, audit
from windermere.paper.studies.rows import RunRow, Table
from windermere.paper.studies.study import Finished

ORDER = [outcome.name for outcome in Outcome]


@dataclass(frozen=True, kw_only=True)
class AuditRow(RunRow):
    """One model's audit on the test set."""

    outcome: str
    own: float
    """Accuracy with its own solver."""
    flow: float | None
    """Accuracy under the flow of its field; None where that is not known."""


AUDITS = Table("audits", AuditRow)


def audit_rows(run: Finished) -> list[AuditRow]:
    verdicts = [audit(run.trained.member(s), run.test_set) for s in range(run.trained.ensemble.size)]
    return [
        AuditRow(
            run=run.name,
            seed=seed,
            outcome=verdict.outcome.name,
            own=verdict.own.metric or 0.0,
            flow=verdict.reference.metric,
        )
        for seed, verdict in zip(run.trained.config.seeds, verdicts, strict=True)
    ]


def outcomes(rows: Iterable[AuditRow]) -> str:
    """How many of each outcome there are: "3 FLOW, 2 UNDECIDED"."""
    counts = Counter(row.outcome for row in rows)
    return ", ".join(f"{counts[name]} {name}" for name in ORDER if counts[name])
