"""Is this model a flow? A verdict with evidence, for any library's Neural ODE."""

from windermere.audit.audit import audit
from windermere.audit.sweep import Candidate
from windermere.audit.verdict import Evidence, Line, Outcome, Verdict

__all__ = ["Candidate", "Evidence", "Line", "Outcome", "Verdict", "audit"]
