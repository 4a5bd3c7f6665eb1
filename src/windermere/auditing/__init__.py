"""Is this model a flow? A verdict with evidence, for any library's Neural ODE."""

from windermere.auditing.audit import audit
from windermere.auditing.candidates import Candidate
from windermere.auditing.judge import Judge
from windermere.auditing.loop import LoopReport, audit_loop
from windermere.auditing.metrics import Metric, energy_drift
from windermere.auditing.progress import AuditProgress
from windermere.auditing.sampler import Sampler
from windermere.auditing.sets import SetDistance
from windermere.auditing.verdict import Evidence, Line, Outcome, Verdict

__all__ = [
    "AuditProgress",
    "Candidate",
    "Evidence",
    "Judge",
    "Line",
    "LoopReport",
    "Metric",
    "Outcome",
    "Sampler",
    "SetDistance",
    "Verdict",
    "audit",
    "audit_loop",
    "energy_drift",
]
