"""What a page says of a verdict, in words for people who have never solved an ODE.

A record is a verdict as `Verdict.to_dict` gives it. Outcomes and metrics that are not known here get plain words too,
and numbers that are missing are said to be not known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeAlias

from windermere.report.audit_data import fraction
from windermere.report.numbers import ACCURACY, MANY, Digits, moved_words

Record: TypeAlias = Mapping[str, Any]
NOT_KNOWN = "not known"
OF_FLOW_ALONE = ("movement", "sets")
"""Kinds of verdict that look at the flow, and at no other solver."""
ROUNDING = 1e-4
"""Differences below this share of the threshold are told as 0."""
SHARES, WITHOUT_LABELS = ("classes", "decisions", "movement"), ("decisions", "movement")
"""Kinds of verdicts: whose scores are shares, and which have no labels, so that scores tell what changes."""


@dataclass(frozen=True)
class OutcomeWords:
    """How an outcome is called, and what it means for whoever uses the model."""

    title: str
    tone: str
    """good, bad or unsure"""
    meaning: str


OUTCOMES = {
    "FLOW": OutcomeWords("A flow", "good", "This model really is an ODE"),
    "TIED": OutcomeWords("Tied to its solver", "bad", "This model works with its own solver only"),
    "COARSE": OutcomeWords("Better than its solver", "unsure", "This model is solved too coarsely"),
    "MOVED": OutcomeWords("Its outputs move", "bad", "This model's outputs depend on its solver"),
    "UNDECIDED": OutcomeWords("Undecided", "unsure", "It could not be decided whether this model is an ODE"),
}


EVIDENCE = {
    "crossings": "Do trajectories cross? (crossings)",
    "orientation": "Do steps turn the space inside out? (orientation)",
    "h L": "Is the step short for this field? (h L: the step times how steep the field is)",
    "modified equation": "How much does the solver add to the field? (modified equation)",
    "convergence": "Does the error shrink with the step as it should? (convergence)",
    "there and back": "Does the way back lead to the start? (there and back)",
    "energy": "Is the energy kept? (energy)",
    "margins": "How many decisions stand whatever the solver? (margins)",
    "stability": "Do steps make grow what ought to decay? (stability)",
}
"""The question that each piece of evidence answers, with its name."""


def evidence_title(name: str) -> str:
    return EVIDENCE.get(name, name)


def outcome_words(record: Record) -> OutcomeWords:
    name = str(record.get("outcome", "UNDECIDED"))
    return OUTCOMES.get(name, OutcomeWords(name.capitalize(), "unsure", f"The audit's answer is {name}"))


def headline(record: Record) -> str:
    """The verdict in one sentence for a manager."""
    words = outcome_words(record)
    own, flow = own_score(record), flow_score(record)
    if record.get("outcome") == "UNDECIDED" or own is None or flow is None:
        return f"{words.meaning}."
    if record.get("kind") in WITHOUT_LABELS:
        changed = (
            f"its outputs move by {moved_words(flow)}"
            if record["kind"] == "movement"
            else f"{share_words(flow)} of its decisions change"
        )
        return f"{words.meaning}: solved more accurately, {changed}."
    if record.get("outcome") == "FLOW":
        return f"{words.meaning}: solved more accurately, it scores {_about_the_same(record, own, flow)}."
    worst = _worst(record)
    if worst is not None and worst[0] != "the flow":
        change = _change(record, worst[1], one=True)
        return f"{words.meaning}: with {worst[0]}, whose error is no larger, it {change}."
    return f"{words.meaning}: solved more accurately, the same weights {_change(record, flow)}."


def _change(record: Record, other: float, *, one: bool = False) -> str:
    """What another solver makes of it: they get, or one gets."""
    now, before = score_words(record, other), score_words(record, own_score(record))
    if is_relative(record):
        return f"{'has' if one else 'have'} an error ({metric_name(record)}) of {now} instead of {before}"
    if record.get("kind") == "sets":
        return f"{'draws' if one else 'draw'} samples at a distance of {now} from real ones, instead of {before}"
    if record.get("kind") == "likelihood":
        told = f"a negative log-likelihood of {now} instead of {before} (lower is better)"
        return f"{'gives' if one else 'give'} {told}"
    verb = ("get" if is_share(record) else "score") + ("s" if one else "")
    return f"{verb} {now}{' right' if is_share(record) else ''} instead of {before}"


def _about_the_same(record: Record, own: float, flow: float) -> str:
    if score_words(record, own) == score_words(record, flow):
        return f"the same ({score_words(record, own)})"
    return f"about the same ({score_words(record, flow)}, and {score_words(record, own)} with its own solver)"


def _worst(record: Record) -> tuple[str, float] | None:
    """The accurate solver whose score lies farthest away, where the flow's own score is no reason to worry."""
    flow, own = flow_score(record), own_score(record)
    if flow is None or own is None:
        return None
    low, high = band(record, own)
    if not low <= flow <= high:
        return "the flow", flow
    lines = [line for line in record.get("table") or () if line.get("counts") and line.get("metric") is not None]
    far = max(lines, key=lambda line: abs(line["metric"] - own), default=None)
    return None if far is None else (str(far.get("solver")), float(far["metric"]))


def band(record: Record, own: float) -> tuple[float, float]:
    """Between which scores those of other solvers count as the same."""
    given, limit = record.get("band"), abs(number(record.get("threshold"), 0.0))
    if isinstance(given, Sequence) and len(given) == 2:
        return number(given[0], own), number(given[1], own)
    return own - limit, own + limit


def number(value: Any, otherwise: float) -> float:
    """A number, or what stands for one that is missing."""
    return float(value) if isinstance(value, int | float) and isfinite(value) else otherwise


def own_score(record: Record) -> float | None:
    return _number_of(record.get("own"), "metric")


def flow_score(record: Record) -> float | None:
    return _number_of(record.get("reference"), "metric")


def _number_of(part: Any, name: str) -> float | None:
    value = part.get(name) if isinstance(part, Mapping) else None
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


def metric_name(record: Record) -> str:
    return str(record.get("metric") or "score").replace("_", " ")


def is_share(record: Record) -> bool:
    """Whether scores are shares of the samples, told in percent."""
    return record.get("kind") in SHARES or record.get("metric") == ACCURACY


def is_relative(record: Record) -> bool:
    """Whether scores are errors, compared by how many times as large they are."""
    return record.get("kind") == "errors"


def of_roots(record: Record) -> bool:
    """Whether scores are mean squares, which are compared by their roots: the rule's band is wider than its factor."""
    own, limit = own_score(record), number(record.get("threshold"), 0.0)
    if not is_relative(record) or not own or record.get("band") is None:
        return False
    widest = band(record, own)[1] / own
    return abs(widest - limit**2) < abs(widest - limit)


def digits(record: Record) -> Digits:
    limit = abs(number(record.get("threshold"), 0.1))
    return Digits(limit, shares=is_share(record), relative=is_relative(record))


def score_words(record: Record, value: float | None) -> str:
    """A score with its unit."""
    if value is None:
        return NOT_KNOWN
    if record.get("kind") == "sets" and value < 0:
        return "about 0"  # the estimate has no bias, so that noise may take it below 0, where no distance is
    if is_far_move(record, value):
        return f"{value:,.0f} times"
    return f"{value:.1%}" if is_share(record) else digits(record)(value)


def share_words(value: Any) -> str:
    return f"{value:.1%}" if isinstance(value, int | float) and isfinite(value) else NOT_KNOWN


def is_far_move(record: Record, value: float) -> bool:
    """Whether outputs move by so many times their spread that percents would say less."""
    return record.get("kind") == "movement" and value >= MANY


def difference_words(record: Record, value: Any) -> str:
    """A difference of two scores, signed; of shares in percentage points. What only rounding makes is 0."""
    if not isinstance(value, int | float) or not isfinite(value):
        return NOT_KNOWN
    if is_far_move(record, value):
        return f"{value:+,.0f} times"
    value = value if abs(value) > ROUNDING * digits(record).threshold else 0.0
    told = f"{100 * value:+.1f} points" if is_share(record) else digits(record)(float(value), signed=True)
    return told.replace("-", "−") if told[0] == "-" else told


def threshold_words(record: Record) -> str:
    value = number(record.get("threshold"), 0.1)
    if is_relative(record):
        return f"{value:g} times"
    return f"{100 * value:g} point{'s' * (value != 0.01)}" if is_share(record) else digits(record).limit


def precision_words(record: Record, value: Any) -> str:
    """A step as 1/64, a tolerance in digits."""
    if not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        return NOT_KNOWN
    return fraction(float(value)) if record.get("precision_name") != "tolerance" else f"{value:.3g}"
