"""The rows of models that were trained with constant steps and tolerances, and asked Algorithm 2's check."""

from dataclasses import dataclass

from windermere.paper.studies.rows import MAIN, RunRow, Table
from windermere.records import sparse


@dataclass(frozen=True, kw_only=True)
class CheckRow(RunRow):
    """One model under its own solver and under the check that Algorithm 2 or 3 would have."""

    data: str
    method: str
    steps: int | None = None
    tolerance: float | None = None
    lr: float
    iterations: int
    check: str | None = None
    check_steps: int | None = None
    check_tolerance: float | None = None
    own: float | None = None
    """Accuracy on the test set with its own solver."""
    checked: float | None = None
    """The same with the check solver; None where that fails."""
    batches: int | None = None
    """How many training batches were looked at."""
    batch_own: float | None = None
    """Accuracy with its own solver, in the mean over training batches."""
    batch_gap: float | None = None
    """How far both accuracies are apart on a training batch, in the mean over these."""
    batch_fails: float | None = None
    """The share of batches on which they are further apart than Algorithm 2 allows."""
    diverged_at: int | None = sparse()


CHECKS = Table(MAIN, CheckRow)
