"""Evidence: it explains a verdict and never decides one."""

from windermere.auditing.evidence.gather import Drawn, gather_evidence

__all__ = ["Drawn", "gather_evidence"]
