"""A verdict in plain sentences."""

from collections.abc import Sequence

from windermere.audit.safe_step import Safe
from windermere.audit.statistics import Gap
from windermere.audit.sweep import Row
from windermere.audit.verdict import Outcome, ReferenceFacts

TOO_MANY = 1000
"""So many times the samples at hand are not worth counting."""


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
    certain = _exceeding(gaps, threshold) if outcome is Outcome.TIED else gaps
    largest = max(certain, key=lambda gap: abs(gap.value))
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
    return (
        f"UNDECIDED: the gap of {unsure.value:+.3f} on {_samples(unsure.samples)} is too close to the threshold of "
        f"{threshold:g} (95%: {unsure.low:+.3f} to {unsure.high:+.3f}); {_more(unsure, threshold)} more samples would "
        "settle it."
    )


def _samples(n: int) -> str:
    return f"{n} sample{'s' if n > 1 else ''}"


def _exceeding(gaps: Sequence[Gap], threshold: float) -> list[Gap]:
    return [gap for gap in gaps if gap.exceeds(threshold)]


def _more(gap: Gap, threshold: float) -> str:
    """An estimate, where the gap does not happen to lie at the threshold itself."""
    more = gap.more_samples(threshold)
    return f"about {max(1, more):,.0f}" if more <= TOO_MANY * gap.samples else "many"


def recommendation(
    outcome: Outcome,
    safe: Safe,
    other: Row | None,
    own: Row,
    flow: Row,
    gaps: Sequence[Gap],
    threshold: float,
    wanted: float,
    classes: bool,
) -> str:
    """What to do at test time. `other` is a safe solver of another method, `gaps` begins with the one to the flow
    itself, `wanted` is the agreement asked for."""
    if outcome is Outcome.TIED:
        return _if_tied(safe, own, gaps, threshold, classes)
    if outcome is Outcome.UNDECIDED:
        return "Don't change its solver until this is settled."
    if safe.precision is None:
        return _without_safe(safe, own.agreement(flow), wanted) + _elsewhere(other)
    if safe.precision >= own.precision * (1 - 1e-9):
        return f"Safe at test time: {safe.solver}, or anything finer."
    finer = f"At test time use {safe.solver} or finer: coarser ones, its own included, change too many predictions."
    return finer + _elsewhere(other)


def _elsewhere(other: Row | None) -> str:
    if other is None:
        return ""
    cost = f", in {other.evaluations} evaluations" if other.evaluations else ""
    return f" Or use {other.solver}: it agrees with the flow{cost}."


def _if_tied(safe: Safe, own: Row, gaps: Sequence[Gap], threshold: float, classes: bool) -> str:
    """The rule is two-sided; whether more is better is known of accuracy alone."""
    if not classes:
        return "Use it with its own solver only, or, where the flow's score is the better one, with a finer one only."
    if not (gaps[0].exceeds(threshold) and gaps[0].value < 0):
        return "Use it with its own solver only, or retrain it with a finer one: its field alone does not do the job."
    known = safe.precision is not None and safe.precision < own.precision
    finer = f"{safe.solver} or finer" if known else "a finer one"
    return f"The flow of its field is better than its own solver: at test time use {finer}."


def _without_safe(safe: Safe, own: float, wanted: float) -> str:
    """What was tried, and whether finer was closer; a coarser one may agree by luck."""
    if not safe.ladder:
        return "Keep its own solver: no other precision of it could be tried."
    finest = safe.ladder[0][1]
    shares = f"({own:.1%} with its own, {finest:.1%} there)"
    tried = f"not even {safe.finest} agrees with the flow on {wanted:.1%} of the samples"
    if finest > own:
        return f"Keep its own solver or a finer one: {tried}, but finer is closer {shares}."
    return f"Keep its own solver: {tried}, and finer is no closer {shares}."
