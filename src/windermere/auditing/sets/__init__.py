"""Distances between sets: how far generated samples are from real ones, and how sure that is."""

from windermere.auditing.sets.distance import SetDistance, Target
from windermere.auditing.sets.measured import Measured, set_gap

__all__ = ["Measured", "SetDistance", "Target", "set_gap"]
