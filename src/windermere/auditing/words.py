"""How each kind of judge says what it found: differences of scores, multiples of errors, shares of what changed."""

from dataclasses import dataclass
from math import inf, isinf

from windermere.auditing.judge import Judge, Kind
from windermere.auditing.statistics import Gap
from windermere.auditing.table import FLOW_ITSELF
from windermere.auditing.verdict import Line, ReferenceFacts
from windermere.report.numbers import MANY

NOBODY = "without labels nobody can say whether for better or worse"


@dataclass(frozen=True)
class Compared:
    """What the rule looks at: the gap between the own solver and another, or the flow itself."""

    solver: str
    gap: Gap

    def __str__(self) -> str:
        return self.solver if self.solver == FLOW_ITSELF else f"{self.solver}, whose error is no larger,"


@dataclass(frozen=True)
class Words:
    """Words about scores whose means are apart."""

    judge: Judge
    own: Line
    reference: ReferenceFacts

    @property
    def limit(self) -> str:
        """The threshold with its units."""
        return self.judge.digits.limit + (" nats" if self.judge.kind is Kind.LIKELIHOOD else "")

    def size(self, gap: Gap) -> str:
        """How far apart, without a sign."""
        return self.judge.digits(abs(gap.value))

    def both(self) -> str:
        """The scores with its own solver and under the flow."""
        digits = self.judge.digits
        return (
            f"{self.judge.name} {digits(self.own.metric)} with {self.own.solver}, {digits(self.reference.metric)} "
            "under the flow of its field"
        )

    def same(self, largest: Compared) -> str:
        return (
            f"the same score to within {self.limit} with every solver at least as accurate as its own "
            f"({self.own.solver}), and under the flow itself; the largest gap is {self.size(largest.gap)}, to "
            f"{largest.solver}"
        )

    def worse(self, largest: Compared) -> str:
        return f"{self.both()}; the gap to {largest} is {self.size(largest.gap)}, more than {self.limit}"

    def better(self, largest: Compared) -> str:
        return f"{self.both()}; with {largest} the score is better by {self.size(largest.gap)}, more than {self.limit}"

    def unsure(self, largest: Compared, counted: str) -> str:
        value, *_ = self.interval(largest.gap)
        return (
            f"the gap of {value} between its own solver ({self.own.solver}) and {largest.solver} on {counted} could be "
            f"on either side of the threshold of {self.limit} {self.around(largest.gap)}"
        )

    def to_flow(self, gap: Gap) -> str:
        return f"the gap to the flow is {self.interval(gap)[0]} {self.around(gap)}"

    def number(self, x: float) -> str:
        """One of a gap's numbers."""
        return self.judge.digits(x, signed=True)

    def interval(self, gap: Gap) -> tuple[str, str, str]:
        value, low, high = (self.number(x) for x in (gap.value, gap.low, gap.high))
        return value, low, high

    def around(self, gap: Gap) -> str:
        """The interval in brackets, or that there is none."""
        if isinf(gap.low) or isinf(gap.high):
            few = "1 sample is" if gap.samples == 1 else f"{gap.samples} samples are"
            return f"({few} too few for an interval)"
        _, low, high = self.interval(gap)
        return f"(95%: {low} to {high})"


@dataclass(frozen=True)
class ErrorWords(Words):
    """Words about errors, which are multiples of the own one."""

    def size(self, gap: Gap) -> str:
        return f"{times(gap.value)} times its own"

    @property
    def noun(self) -> str:
        return "root mean square error" if self.judge.name == "mse" else "error"

    def same(self, largest: Compared) -> str:
        return (
            f"the same {self.noun} to within a factor of {self.limit} with every solver at least as accurate as its "
            f"own ({self.own.solver}), and under the flow itself; it changes most with {largest.solver}, to "
            f"{self.size(largest.gap)}"
        )

    def worse(self, largest: Compared) -> str:
        return f"{self.both()}; with {largest} the {self.noun} is {self.size(largest.gap)}, more than {self.limit}"

    def better(self, largest: Compared) -> str:
        return f"{self.both()}; with {largest} the {self.noun} is {self.size(largest.gap)}, less than 1/{self.limit}"

    def unsure(self, largest: Compared, counted: str) -> str:
        value, *_ = self.interval(largest.gap)
        return (
            f"with {largest.solver} the {self.noun} is {value} times that of its own solver ({self.own.solver}) on "
            f"{counted}, which could be on either side of a factor of {self.limit} {self.around(largest.gap)}"
        )

    def to_flow(self, gap: Gap) -> str:
        return f"under the flow the {self.noun} is {self.interval(gap)[0]} times its own {self.around(gap)}"

    def number(self, x: float) -> str:
        return times(x)


@dataclass(frozen=True)
class DecisionWords(Words):
    """Words about decisions that change, where nobody knows which are right."""

    @property
    def limit(self) -> str:
        return percent(self.judge.threshold)

    def size(self, gap: Gap) -> str:
        return f"{percent(gap.value)} of decisions"

    def same(self, largest: Compared) -> str:
        return (
            f"no more than {self.limit} of decisions change with any solver at least as accurate as its own "
            f"({self.own.solver}), or under the flow itself; the most, {percent(largest.gap.value)}, with "
            f"{largest.solver}"
        )

    def worse(self, largest: Compared) -> str:
        return f"{self.size(largest.gap)} change {self.way(largest)}, more than {self.limit}; {NOBODY}"

    def unsure(self, largest: Compared, counted: str) -> str:
        changed = f"{self.size(largest.gap)} change {self.way(largest)} on {counted}"
        return f"{changed}, which could be on either side of {self.limit} {self.around(largest.gap)}"

    def to_flow(self, gap: Gap) -> str:
        return f"{self.size(gap)} change under the flow {self.around(gap)}"

    def number(self, x: float) -> str:
        return percent(x)

    def way(self, largest: Compared) -> str:
        return f"from its own solver ({self.own.solver}) to {largest.solver}"


@dataclass(frozen=True)
class MovementWords(DecisionWords):
    """Words about outputs that move."""

    def size(self, gap: Gap) -> str:
        return f"{self.number(gap.value)}{'' if MANY <= gap.value < inf else ' of'} their spread"

    def number(self, x: float) -> str:
        return f"{x:,.0f} times" if MANY <= x < inf else percent(x)

    def same(self, largest: Compared) -> str:
        return f"{self.way(largest)} outputs move by {self.size(largest.gap)}, no more than {self.limit}"

    def worse(self, largest: Compared) -> str:
        return f"{self.way(largest)} outputs move by {self.size(largest.gap)}, more than {self.limit}; {NOBODY}"

    def unsure(self, largest: Compared, counted: str) -> str:
        moved = f"{self.way(largest)} outputs move"
        if isinf(largest.gap.value):
            return f"{moved}, but those of {counted} have no spread to measure that by"
        moved = f"{moved} by {self.size(largest.gap)} on {counted}"
        return f"{moved}, which could be on either side of {self.limit} {self.around(largest.gap)}"

    def to_flow(self, gap: Gap) -> str:
        if isinf(gap.value):
            return "under the flow outputs move, and have no spread to measure that by"
        return f"under the flow outputs move by {self.size(gap)} {self.around(gap)}"


@dataclass(frozen=True)
class SetWords(Words):
    """Words about sets of samples, and how far they are from the data."""

    def both(self) -> str:
        """The estimates have no bias, so that those of sets as good as the data may fall below 0."""
        scores = (self.own.metric, self.reference.metric)
        below = any(score is not None and score < 0 for score in scores)
        return super().both() + (" (below 0 is 0 within its noise)" if below else "")

    def same(self, largest: Compared) -> str:
        return (
            f"{self.both()}; the sets differ by {self.size(largest.gap)}, no more than the {self.limit} that count as "
            "different"
        )


WORDS: dict[Kind, type[Words]] = {
    Kind.SETS: SetWords,
    Kind.ERRORS: ErrorWords,
    Kind.DECISIONS: DecisionWords,
    Kind.MOVEMENT: MovementWords,
}
"""The kinds whose words are not those of scores."""


def words_of(judge: Judge, own: Line, reference: ReferenceFacts) -> Words:
    return WORDS.get(judge.kind, Words)(judge, own, reference)


def percent(share: float) -> str:
    """A share with the digits that it needs."""
    hundred = 100 * share
    if isinf(hundred):
        return f"{hundred}%"
    return f"{hundred:.0f}%" if hundred >= 10 and hundred == round(hundred) else f"{hundred:.3g}%"


def times(ratio: float) -> str:
    """A multiple with the digits that it needs."""
    return f"{ratio:.2f}" if 0.01 <= ratio < 10 else f"{ratio:.3g}"
