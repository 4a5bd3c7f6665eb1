"""A verdict in plain sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

from windermere.auditing.safe_step import Safe
from windermere.auditing.scoring import Result
from windermere.auditing.statistics import Gap
from windermere.auditing.table import FLOW_ITSELF
from windermere.auditing.verdict import Line, Outcome, ReferenceFacts
from windermere.report.numbers import Digits

TOO_MANY = 1000
"""So many times the samples at hand are not worth counting."""


@dataclass(frozen=True)
class Compared:
    """What the rule looks at: the gap between the own solver and another, or the flow itself."""

    solver: str
    gap: Gap

    def __str__(self) -> str:
        return self.solver if self.solver == FLOW_ITSELF else f"{self.solver}, which is at least as accurate,"


def sentence(
    outcome: Outcome,
    own: Line,
    reference: ReferenceFacts,
    compared: Sequence[Compared],
    digits: Digits,
    metric: str,
    doubt: str | None,
    chance: float | None,
) -> str:
    """What was found, in one sentence; `chance` is the score of a constant answer, where its own is no better."""
    if doubt is not None:
        return f"UNDECIDED: {doubt}."
    if outcome is Outcome.UNDECIDED:
        return _unsure(own, compared, digits)
    certain = [each for each in compared if outcome is Outcome.FLOW or each.gap.exceeds(digits.threshold)]
    largest = max(certain, key=lambda each: abs(each.gap.value))
    gap = digits(abs(largest.gap.value))
    if outcome is Outcome.TIED:
        return (
            f"TIED to its solver: {metric} {digits(own.metric)} with {own.solver}, {digits(reference.metric)} under "
            f"the flow of its field; the gap to {largest} is {gap}, more than {digits.limit}."
        )
    return (
        f"FLOW: the same score to within {digits.limit} with every solver at least as accurate as its own "
        f"({own.solver}), and under the flow itself; the largest gap is {gap}, to {largest.solver}."
        f"{_near_chance(own, digits, metric, chance)}"
    )


def _near_chance(own: Line, digits: Digits, metric: str, chance: float | None) -> str:
    """Else an untrained model would be a flow without a word."""
    if chance is None:
        return ""
    return (
        f" But {metric} {digits(own.metric)} is no better than chance (the most frequent class alone makes "
        f"{digits(chance)}), so that this says little."
    )


def _unsure(own: Line, compared: Sequence[Compared], digits: Digits) -> str:
    threshold = digits.threshold
    open_ = [each for each in compared if each.gap.exceeds(threshold) is None]
    unsure = max(open_, key=lambda each: each.gap.more_samples(threshold))
    value, low, high = (digits(x, signed=True) for x in (unsure.gap.value, unsure.gap.low, unsure.gap.high))
    return (
        f"UNDECIDED: the gap of {value} between its own solver ({own.solver}) and {unsure.solver} on "
        f"{_samples(unsure.gap.samples)} is too close to the threshold of {digits.limit} (95%: {low} to {high}); "
        f"{_more(unsure.gap, threshold)} more samples would settle it."
    )


def _samples(n: int) -> str:
    return f"{n} sample{'s' if n > 1 else ''}"


def _more(gap: Gap, threshold: float) -> str:
    """An estimate, where the gap does not happen to lie at the threshold itself."""
    more = gap.more_samples(threshold)
    return f"about {max(1, more):,.0f}" if more <= TOO_MANY * gap.samples else "many"


def recommendation(
    outcome: Outcome,
    safe: Safe,
    other: Result | None,
    own: Line,
    compared: Sequence[Compared],
    threshold: float,
    wanted: float,
    classes: bool,
) -> str:
    """What to do at test time. `other` is a safe solver of another method, `compared` begins with the flow itself,
    `wanted` is the agreement asked for."""
    if outcome is Outcome.TIED:
        return _if_tied(safe, own, compared[0].gap, threshold, classes)
    if outcome is Outcome.UNDECIDED:
        return "Don't change its solver until this is settled."
    if safe.precision is not None and safe.precision >= own.precision * (1 - 1e-9):
        return f"Safe at test time: {safe.solver}, or anything finer."
    if not safe.ladder:
        return "Keep its own solver: no other precision of it could be tried." + _elsewhere(other)
    differs = "The same score, but other predictions" if classes else "The same score on average, but not by sample"
    return f"{differs}: {_with_other_predictions(safe, own, wanted)}{_elsewhere(other)}"


def _elsewhere(other: Result | None) -> str:
    if other is None:
        return ""
    cost = f", in {other.evaluations} evaluations" if other.evaluations else ""
    return f" Or use {other.solver}: it agrees with the flow{cost}."


def _if_tied(safe: Safe, own: Line, gap: Gap, threshold: float, classes: bool) -> str:
    """The rule is two-sided; whether more is better is known of accuracy alone. The gap is that to the flow."""
    if not classes:
        return "Use it with its own solver only, or, where the flow's score is the better one, with a finer one only."
    if not (gap.exceeds(threshold) and gap.value < 0):
        return "Use it with its own solver only, or retrain it with a finer one: its field alone does not do the job."
    known = safe.precision is not None and safe.precision < own.precision
    finer = f"{safe.solver} or finer" if known else "a finer one"
    return f"The flow of its field is better than its own solver: at test time use {finer}."


def _with_other_predictions(safe: Safe, own: Line, wanted: float) -> str:
    """What to use where single predictions matter, or what was tried, and whether finer was closer; a coarser one may
    agree by luck."""
    its, finest = own.agreement_reference or 0.0, safe.ladder[0][1]
    if safe.precision is not None:
        return (
            f"its own solver agrees with the flow on {its:.1%} of the samples. Where each of them matters, use "
            f"{safe.solver} or finer at test time ({wanted:.1%} or more)."
        )
    shares = f"({its:.1%} with its own, {finest:.1%} there)"
    tried = f"not even {safe.finest} agrees with the flow on {wanted:.1%} of the samples {shares}"
    if finest > its:
        return f"{tried}. Keep its own solver or a finer one: finer is closer."
    return f"{tried}. Keep its own solver: finer is no closer."
