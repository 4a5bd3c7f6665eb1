"""A verdict in plain sentences."""

from collections.abc import Sequence
from math import isfinite

from windermere.audit.safe_step import Safe
from windermere.audit.statistics import Gap
from windermere.audit.sweep import Row
from windermere.audit.verdict import Outcome, ReferenceFacts


def sentence(
    outcome: Outcome,
    own: Row,
    reference: ReferenceFacts,
    gaps: Sequence[Gap],
    threshold: float,
    metric: str,
    doubt: str | None,
) -> str:
    """What was found, in one sentence."""
    largest = max(gaps, key=lambda gap: abs(gap.value))
    if outcome is Outcome.FLOW:
        return (
            f"FLOW: every solver at least as accurate as its own ({own.solver}), and the flow itself, scores within "
            f"{threshold:g} of it (largest gap {abs(largest.value):.3f})."
        )
    if outcome is Outcome.TIED:
        return (
            f"TIED to its solver: {metric} {own.metric:.3f} with {own.solver}, {reference.metric:.3f} under the flow "
            f"of its field; the gap to a solver at least as accurate is "
            f"{abs(largest.value):.3f}, more than {threshold:g}."
        )
    if doubt is not None:
        return f"UNDECIDED: {doubt}."
    unsure = max((gap for gap in gaps if gap.exceeds(threshold) is None), key=lambda gap: gap.more_samples(threshold))
    more = unsure.more_samples(threshold)
    wanted = (
        f"about {more:,.0f} more samples would settle it" if isfinite(more) else "no number of samples will settle it"
    )
    return (
        f"UNDECIDED: the gap of {abs(unsure.value):.3f} on {unsure.samples} samples is too close to the threshold of "
        f"{threshold:g} (95%: {unsure.low:+.3f} to {unsure.high:+.3f}); {wanted}."
    )


def recommendation(outcome: Outcome, safe: Safe, own: Row, classes: bool) -> str:
    """What to do at test time."""
    if outcome is Outcome.TIED:
        return "Use it with its own solver only, or retrain it with a finer one: its field alone does not do the job."
    if outcome is Outcome.UNDECIDED:
        return "Don't change its solver until this is settled."
    if safe.precision is None:
        return "Keep its own solver: no other precision of it agrees with the flow on enough samples."
    if safe.precision >= own.precision * (1 - 1e-9):
        return f"Safe at test time: {safe.solver}, or anything finer."
    return f"At test time use {safe.solver} or finer: coarser ones, its own included, change too many predictions."
