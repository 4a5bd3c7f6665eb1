"""The rows of the study's tables."""

from dataclasses import dataclass

from windermere.paper.studies.rows import MAIN, RunRow, Table


@dataclass(frozen=True, kw_only=True)
class SettingRow(RunRow):
    """What was tuned, through what, and what it cost."""

    data: str
    network: str
    loss: str
    through: str
    method: str
    steps: int
    """The own solver's; where a controller chose it, at the end."""
    iterations: int
    evaluations: float
    """Per iteration, those of checks included."""


@dataclass(frozen=True, kw_only=True)
class JudgedRow(RunRow):
    """Four sets of samples from the same noise: energy distances, or mean distances from the nearest aim. Lower is
    better."""

    own_before: float
    flow_before: float
    own: float
    """After tuning, with its own solver."""
    flow: float
    """After tuning, under the flow."""
    gap: float
    """How much worse the flow's samples are than the own ones."""
    gap_low: float
    gap_high: float
    excess_low: float
    """The lower end of the 95% interval of what the gap is above what is allowed."""
    excess_high: float
    harm: float
    """How much worse the flow's samples are than they were before tuning."""
    harm_low: float
    harm_high: float
    tied: bool | None
    """Whether the flow is surely worse than allowed; None where the interval does not tell."""
    harmed: bool | None
    """Whether the flow is surely worse than before."""


@dataclass(frozen=True, kw_only=True)
class TunedRow(JudgedRow, SettingRow):
    """One tuned sampler, judged by what it was tuned by."""

    audit: str
    """The library's own verdict."""


@dataclass(frozen=True, kw_only=True)
class OpinionRow(JudgedRow):
    """The same samples, judged by something else."""

    yardstick: str


@dataclass(frozen=True, kw_only=True)
class SampleRow(RunRow):
    """One point of noise: where its sample is before and after tuning, with the own solver and under the flow."""

    own_before_x: float
    own_before_y: float
    flow_before_x: float
    flow_before_y: float
    own_x: float
    own_y: float
    flow_x: float
    flow_y: float


@dataclass(frozen=True, kw_only=True)
class DigitRow(RunRow):
    """One image from one draw of noise, the pixels as pairs of hexadecimal digits, from white to black."""

    stage: str
    """`own_before`, `flow_before`, `own` or `flow`."""
    sample: int
    side: int
    pixels: str


TUNED, SAMPLES = Table(MAIN, TunedRow), Table("samples", SampleRow)
OPINIONS, DIGITS = Table("opinions", OpinionRow), Table("digits", DigitRow)
"""The tables that only samplers of images have."""
