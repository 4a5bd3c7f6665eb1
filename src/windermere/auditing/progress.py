"""What an audit spends, and what it tells of that while it works."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from windermere.auditing.samples import size
from windermere.auditing.subject import Change, Insight, Pass, Subject, finest

OWN, FLOW, TABLE, EVIDENCE = "own solver", "reference flow", "other solvers", "evidence"
"""The phases of an audit, in their order; all but the last come again with each batch."""


@dataclass(frozen=True, kw_only=True)
class AuditProgress:
    """Where an audit stands."""

    phase: str
    """`own solver`, `reference flow`, `other solvers` or `evidence`."""
    solver: str | None
    """The solver that is at work, None where it is the model's own."""
    batch: int
    """The number of the batch that is at work, from 1 on."""
    batches: int | None
    """How many there are, None where they are streamed."""
    evaluations: float
    """How often the field was evaluated so far for a sample, on average over those that were looked at."""


Report: TypeAlias = Callable[[AuditProgress], None]


class ReportRaised(BaseException):
    """A report's own error, past all that takes an Exception for the failure of a solver."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Watched:
    """A subject that counts the evaluations of its passes, and tells a report of each pass before it begins."""

    def __init__(self, subject: Subject, report: Report | None = None, batches: int | None = None) -> None:
        self.subject, self.report, self.batches = subject, report, batches
        self.library, self.solvers = subject.library, subject.solvers
        self.phase, self.batch = OWN, 1
        self.samples = 0
        """Those of all batches that were begun."""
        self._spent = 0
        """Evaluations of all passes, each times its samples."""

    @property
    def notes(self) -> tuple[str, ...]:
        return self.subject.notes

    @property
    def evaluations(self) -> float:
        """Those of all passes so far, for a sample."""
        return self._spent / max(1, self.samples)

    def begin(self, batch: int, samples: int) -> None:
        """Another batch, of so many samples."""
        self.batch, self.samples = batch, self.samples + samples

    def enter(self, phase: str) -> None:
        """Another phase, whose passes follow."""
        self.phase = phase
        self._tell(None)

    def forward(self, x: Any, change: Change | None, *, double: bool = False) -> Pass:
        self._tell(change)
        done = self.subject.forward(x, change, double=double)
        self._spent += done.evaluations * size(x)
        return done

    def insight(self, x: Any) -> Insight | None:
        return self.subject.insight(x)

    def _tell(self, change: Change | None) -> None:
        if self.report is not None:
            solver = None if change is None else str(change(finest(self.solvers)))
            progress = AuditProgress(
                phase=self.phase,
                solver=solver,
                batch=self.batch,
                batches=self.batches,
                evaluations=self.evaluations,
            )
            try:
                self.report(progress)
            except Exception as error:
                raise ReportRaised(error) from error
