"""A verdict in plain sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf

from windermere.auditing.judge import Judge, Kind
from windermere.auditing.safe_step import Safe
from windermere.auditing.scoring import Result
from windermere.auditing.statistics import Gap
from windermere.auditing.verdict import Line, Outcome, ReferenceFacts
from windermere.auditing.words import Compared, Words, percent, words_of
from windermere.report.audit_data import fraction

TOO_MANY = 1000
"""So many times the samples at hand are not worth counting."""
BUT = " But "
"""Begins what restricts a sentence."""
FINE = "the field is fine, its solver too coarse"


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All that a verdict is worded from."""

    judge: Judge
    outcome: Outcome
    own: Line
    reference: ReferenceFacts
    compared: Sequence[Compared]
    """It begins with the flow itself."""
    safe: Safe
    other: Result | None
    """A safe solver of another method"""
    wanted: float
    """The agreement asked for, where there are decisions"""
    needed: float | None
    """The precision at which the training method would be as far from the flow as is allowed, where it is further"""
    doubt: str | None
    """Why nothing can be said"""
    chance: float | None
    """The accuracy of a constant answer, where its own is no better"""
    headless: bool
    """Whether the outputs are where the solve ends, without a layer that makes classes of them"""
    population: str
    """What the samples are"""
    samples: int
    agreement: float | None

    @property
    def words(self) -> Words:
        return words_of(self.judge, self.own, self.reference)


def sentence(found: Findings) -> str:
    """What was found, in one sentence."""
    words, threshold = found.words, found.judge.threshold
    if found.doubt is not None:
        return f"UNDECIDED: {found.doubt}."
    if found.outcome is Outcome.UNDECIDED:
        return f"UNDECIDED: {_unsure(found)}.{_near_chance(found)}"
    if found.outcome is Outcome.FLOW:
        return f"FLOW: {words.same(_largest(found.compared))}.{_near_chance(found)}"
    if found.outcome is Outcome.COARSE:
        certain = [each for each in found.compared if each.gap.improves(threshold)]
        return f"COARSE: {FINE}: {words.better(_largest(certain))}.{_near_chance(found)}"
    certain = [each for each in found.compared if each.gap.worse(threshold)]
    called = "TIED to its solver" if found.outcome is Outcome.TIED else "MOVED"
    return f"{called}: {words.worse(_largest(certain))}.{_near_chance(found)}"


def summary(found: Findings) -> tuple[str, ...]:
    """Scores and agreement, a sentence each."""
    digits, gap = found.judge.digits, found.compared[0].gap if found.compared else None
    own = f"{found.judge.name}: {digits(found.own.metric)} with its own solver ({found.own.solver})"
    samples = f"{_samples(found.samples)} ({found.population})"
    if gap is None or found.agreement is None:
        return (f"{own}, on {samples}; not known under the flow",)
    judged = f", judged by {gap.samples} blocks of time" if gap.blocks else ""
    scores = f"{own}, {digits(found.reference.metric)} under the flow; {found.words.to_flow(gap)}"
    return (
        scores if found.judge.labelled else found.words.to_flow(gap),
        f"own solver and flow agree on {found.agreement:.1%} of {samples}{judged}",
    )


def _largest(compared: Sequence[Compared]) -> Compared:
    return max(compared, key=lambda each: each.gap.size)


def _near_chance(found: Findings) -> str:
    """Else an untrained model would be a flow without a word, and so would a sampler with labels that mean nothing."""
    if found.chance is None:
        return ""
    digits = found.judge.digits
    headless = (
        " (its outputs are the states of its solve: if they are no scores of classes, leave the labels out)"
        if found.headless
        else ""
    )
    return (
        f"{BUT}{found.judge.name} {digits(found.own.metric)} is no better than chance (the most frequent class alone "
        f"makes {digits(found.chance)}), so that this says little{headless}."
    )


def _unsure(found: Findings) -> str:
    threshold = found.judge.threshold
    open_ = [e for e in found.compared if None in (e.gap.worse(threshold), e.gap.improves(threshold))]
    unsure = max(open_, key=lambda each: each.gap.more_samples(threshold))
    counted = f"{unsure.gap.samples} blocks of time" if unsure.gap.blocks else _samples(unsure.gap.samples)
    return f"{found.words.unsure(unsure, counted)}; {_more(unsure.gap, threshold)} would settle it"


def _samples(n: int) -> str:
    return f"{n} sample{'s' if n > 1 else ''}"


def _more(gap: Gap, threshold: float) -> str:
    """An estimate, where there is an interval and the gap does not happen to lie at the threshold itself."""
    more, what = gap.more_samples(threshold), "blocks of time" if gap.blocks else "samples"
    if isinf(gap.low) or isinf(gap.high):
        return f"more {what}"
    if more <= 1:
        return f"about 1 more {what.removesuffix('s') if not gap.blocks else 'block of time'}"
    about = f"about {float(f'{more:.2g}'):,.0f}"  # an estimate has two digits
    return f"{about if more <= TOO_MANY * gap.samples else 'many'} more {what}"


# ---------------------------------------------------------------------------------------------------------
# Advice


def recommendation(found: Findings) -> str:
    """What to do at test time."""
    if found.outcome is Outcome.UNDECIDED:
        return "Don't change its solver until this is settled."
    if found.judge.kind is Kind.LIKELIHOOD and found.outcome in (Outcome.TIED, Outcome.COARSE):
        return _of_likelihood(found)
    if found.outcome is Outcome.TIED:
        return _if_tied(found)
    if found.outcome is Outcome.COARSE:
        return f"More steps are simply better: at test time use {_finer(found)}.{_elsewhere(found)}"
    if found.outcome is Outcome.MOVED:
        return _if_moved(found)
    return _if_flow(found)


def _if_flow(found: Findings) -> str:
    safe, own = found.safe, found.own
    if safe.precision is not None and safe.precision >= own.precision * (1 - 1e-9):
        return f"Safe at test time: {safe.solver}, or anything finer."
    if not safe.ladder:
        return "Keep its own solver: no other precision of it could be tried." + _elsewhere(found)
    if found.judge.kind not in (Kind.CLASSES, Kind.DECISIONS):
        return f"Keep its own solver: not all finer steps of it are as near to the flow.{_elsewhere(found)}"
    return f"The same score, but other predictions: {_with_other_predictions(found)}{_elsewhere(found)}"


def _if_tied(found: Findings) -> str:
    if found.judge.better is None:
        return (
            "Use it with its own solver only, or, where the flow's score is the better one, with a finer one only: a "
            'wm.Metric(function, better="higher") or "lower" says which, and the verdict takes it into account.'
        )
    if found.compared[0].gap.improves(found.judge.threshold):
        return f"The flow of its field is better than its own solver: at test time use {_finer(found)}."
    return "Use it with its own solver only, or retrain it with a finer one: its field alone does not do the job."


def _of_likelihood(found: Findings) -> str:
    """By how many nats the own solver's numbers are wrong, and in which direction."""
    gap, digits = found.compared[0].gap, found.judge.digits
    if not gap.exceeds(found.judge.threshold):
        return f"Its likelihoods depend on the solver: report those of {_finer(found)}.{_elsewhere(found)}"
    wrong = "too good" if gap.value < 0 else "too bad"
    return (
        f"Its own solver's log-likelihoods are {wrong} by {digits(abs(gap.value))} nats for a sample, and belong to no "
        f"density: report those of {_finer(found)}.{_elsewhere(found)}"
    )


def _if_moved(found: Findings) -> str:
    moved = f" At about {_precision(found)} {_allowed(found)}." if found.needed else ""
    return (
        f"If its outputs are good, use it with its own solver only; if the flow's are wanted, use {_finer(found)}."
        f"{moved}{_elsewhere(found)} With labels or data the audit can say which."
    )


def _allowed(found: Findings) -> str:
    """How far outputs may move."""
    limit = percent(found.judge.threshold)
    if found.judge.kind is Kind.DECISIONS:
        return f"it would be {limit} of decisions that change"
    return f"outputs would move by {limit} of their spread"


def _precision(found: Findings) -> str:
    """In the terms of its own solver."""
    needed = found.needed or 0.0
    name = "tolerance" if "tol" in found.own.solver else "h"
    return f"{found.own.method}, {name} = {fraction(needed) if name == 'h' else f'{needed:.1g}'}"


def _finer(found: Findings) -> str:
    safe = found.safe
    known = safe.precision is not None and safe.precision < found.own.precision
    return f"{safe.solver} or finer" if known else f"one finer than {safe.finest}" if safe.finest else "a finer one"


def _elsewhere(found: Findings) -> str:
    other, sets = found.other, found.judge.kind is Kind.SETS  # single samples of which may be anywhere
    if other is None:
        return ""
    cost = f", in {other.evaluations} evaluations" if other.evaluations else ""
    return f" Or use {other.solver}: it {'scores as the flow does' if sets else 'agrees with the flow'}{cost}."


def _with_other_predictions(found: Findings) -> str:
    """What to use where single predictions matter, or what was tried, and whether finer was closer; a coarser one may
    agree by luck."""
    safe, wanted = found.safe, found.wanted
    its, finest = found.own.agreement_reference or 0.0, safe.ladder[0][1]
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
