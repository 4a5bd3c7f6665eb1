"""Which axis of a model's outputs is the samples': found by giving it fewer of them, never guessed.

Shapes: n samples; models return [n, ...], [T, n, ...] for T times, or anything else that has n along one axis.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from windermere.auditing.samples import first, size, twice
from windermere.auditing.subject import FEW, Change, Insight, Pass, Subject
from windermere.errors import AuditError, UsageError, WindermereError, describe_error
from windermere.nn.shared import cut_places


class BySample:
    """A subject whose outputs have the samples along another axis than the first, or whose states are not theirs."""

    def __init__(self, subject: Subject, axis: int, *, states: bool) -> None:
        self.subject, self.axis, self.states = subject, axis, states
        self.library, self.solvers = subject.library, subject.solvers

    @property
    def notes(self) -> tuple[str, ...]:
        return self.subject.notes

    def forward(self, x: Any, change: Change | None, *, double: bool = False) -> Pass:
        done = self.subject.forward(x, change, double=double)
        outputs = done.outputs.movedim(self.axis, 0) if done.outputs.ndim > self.axis else done.outputs
        return replace(
            done, outputs=outputs, states=done.states if self.states else None, ends=done.ends if self.states else None
        )

    def insight(self, x: Any) -> Insight | None:
        """The head, which follows the solve, is told only where it gives outputs by sample."""
        seen = self.subject.insight(x) if self.states else None
        return seen if seen is None or self.axis == 0 else replace(seen, head=None)


def by_sample(subject: Subject, x: Any, batch_axis: int | None = None) -> Subject:
    """The subject with its outputs by sample, [n, ...], and no states that are not so too. A batch axis that is given
    is checked; a subject that maps its model over samples says itself where they are."""
    known: int | None = getattr(subject, "batch_axis", None)
    if known is not None and batch_axis in (None, known):
        return subject
    tried = _Tried(*on_fewer(subject, x), half(x))
    axis = _only_axis(tried, cut_places(x)) if batch_axis is None else _axis_from_front(batch_axis, tried)
    states = tried.states_are_by_sample()
    return subject if axis == 0 and states else BySample(subject, axis, states=states)


@dataclass(frozen=True)
class _Tried:
    """A model with a few samples, and with half of them."""

    many: Pass
    fewer: Pass
    half: int

    def growing(self) -> list[int]:
        """The axes of the outputs that have as many entries as there are samples, both times."""
        many, fewer = self.many.outputs, self.fewer.outputs
        sizes = (2 * self.half, self.half)
        alike = many.ndim == fewer.ndim
        return [a for a in range(many.ndim) if alike and (many.shape[a], fewer.shape[a]) == sizes]

    def states_are_by_sample(self) -> bool:
        """Whether states have one row for each sample, with the same number of entries whatever the batch."""
        many, fewer = self.many.states, self.fewer.states
        if many is None or fewer is None:
            return False
        return many.shape == (2 * self.half, fewer.shape[1]) and len(fewer) == self.half

    def __str__(self) -> str:
        many, fewer = (tuple(done.outputs.shape) for done in (self.many, self.fewer))
        return f"outputs of shape {many} for {2 * self.half} samples and {fewer} for {self.half}"


def _only_axis(tried: _Tried, places: Sequence[Any]) -> int:
    """The one axis that grows with the samples."""
    growing = tried.growing()
    if len(growing) == 1:
        return growing[0]
    if not growing:
        raise AuditError(
            f"the model returns {tried}: wrap it so that it returns one output for each sample, along an axis that "
            "batch_axis=... can name"
        )
    raise AuditError(
        f"the model returns {tried}, so that the axes {' and '.join(map(str, growing))} grow with the samples: say by "
        f"batch_axis=... which one is theirs{_or_shared(places)}"
    )


def _axis_from_front(batch_axis: int, tried: _Tried) -> int:
    """The batch axis counted from the front, wherever it was counted from; it is refused if it is not the samples'."""
    growing, dimensions = tried.growing(), tried.many.outputs.ndim
    axis = batch_axis + dimensions if batch_axis < 0 else batch_axis
    if axis not in growing:
        theirs = f"theirs is {' or '.join(map(str, growing))}" if growing else "none is theirs"
        raise UsageError(f"batch_axis={batch_axis} is not the samples' axis of {tried}: {theirs}")
    return axis


def half(x: Any) -> int:
    """Half the number of samples that the model is tried on."""
    return max(1, min(size(x) // 2, FEW))


def on_fewer(subject: Subject, x: Any, change: Change | None = None, *, double: bool = False) -> tuple[Pass, Pass]:
    """A pass of a few samples and one of half of them; for a single sample, a pass of it twice and one of it once."""
    enough = x if size(x) > 1 else twice(x)
    try:
        many, fewer = (subject.forward(first(enough, n), change, double=double) for n in (2 * half(x), half(x)))
    except WindermereError:
        raise
    except Exception as error:  # whatever the model raises
        subject.forward(x, None)  # if it does not take all of them either, that is what is to be told
        several = f"{size(x)} samples together, but not {2 * half(x)} or {half(x)} of them"
        takes = several if size(x) > 1 else "one sample, but not the same twice"
        raise AuditError(
            f"the model takes {takes} ({describe_error(error)}): an audit needs samples that do not depend on each "
            f"other{_or_shared(cut_places(x))}"
        ) from error
    return many, fewer


def _or_shared(places: Sequence[Any]) -> str:
    """A further piece of advice where there are several inputs: name those that all samples share."""
    if len(places) < 2:
        return ""
    return f"; or name by shared=... the inputs that all samples share, such as shared=({places[-1]!r},)"
