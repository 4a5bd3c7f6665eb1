"""Models in half precision, whose rounding may be more than their solver's error: no solver is to blame for that."""

from typing import Any

from windermere.auditing.judge import Judge
from windermere.auditing.scoring import Batched, Result, result_of
from windermere.auditing.subject import Subject, finest
from windermere.errors import DoublePrecisionError, SolverError

HALF = ("float16", "bfloat16")
"""Dtypes whose rounding may be so large."""


def unrounded(subject: Subject, x: Any, judge: Judge, known: Batched) -> Result | None:
    """Its own solver in float64, where the flow is known and the own dtype may be what moves outputs from it."""
    if known.flow is None or known.own.dtype not in HALF:
        return None
    try:
        done = subject.forward(x, lambda own: own, double=True)
    except (DoublePrecisionError, SolverError):
        return None
    return None if judge.flaw(done, known.targets) else result_of(judge, finest(subject.solvers), done, known)


def why_rounded(judge: Judge, own: Result, flow: Result | None, exact: Result | None) -> str | None:
    """Where the flow is judged otherwise, and its own solver in float64 is not: more steps would round even more."""
    if flow is None or exact is None or judge.compare(own.kept, flow.kept).exceeds(judge.threshold) is False:
        return None
    if judge.compare(flow.kept, exact.kept).exceeds(judge.threshold) is not False:
        return None
    return (
        f"in half precision it rounds too much to tell: in float64 its own solver ({own.solver}) is judged as the flow "
        "is, so that what it is off by is not its solver's; audit it in float32, as by model.float()"
    )
