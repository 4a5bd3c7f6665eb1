"""Whether passes of a model can be compared at all: the same inputs must give the same outputs, sample by sample."""

from collections.abc import Iterator
from math import inf
from typing import Any

from torch import Tensor

from windermere.auditing.axes import half, on_fewer
from windermere.auditing.samples import first, size, twice
from windermere.auditing.subject import Pass, Subject, one_step
from windermere.errors import DoublePrecisionError, MissedSolvesError, SolverError, WindermereError
from windermere.nn.draws import HELD
from windermere.nn.shared import cut_places, share


def why_not_comparable(subject: Subject, x: Any, own: Pass) -> str | None:
    """The same batch, whose own pass is known, a second time, and a part of it with another solver: noise, dropout,
    batch statistics and solves that no other solver reaches show here."""
    if _apart(own.outputs, subject.forward(x, None).outputs) > 1e-4:
        return (
            "the same batch gives other outputs the second time: there is noise or dropout in the model that an audit "
            "cannot hold fixed, from a generator of its own, a thread or another library than PyTorch; or it remembers "
            "something from one pass to the next"
        )
    try:
        if _is_independent(subject, x):
            return None
    except (DoublePrecisionError, SolverError):
        return None
    except MissedSolvesError as error:
        return str(error)
    apart = "a sample's output depends on the batch it comes in"
    for place in _left_whole(subject, x):
        sharing = f"if all samples share it, give shared=({place!r},)"
        return f"{apart}, but no more where the input {place!r} is left whole: {sharing}"
    return f"{apart}: there are batch statistics in the model"


def _is_independent(subject: Subject, x: Any) -> bool:
    """Whether a few samples have the same outputs without the rest. By one step: adaptive ones depend on the batch, and
    many of a chaotic field magnify rounding; neither counts."""
    if HELD in subject.notes:  # noise for fewer samples is other noise
        whole, part = (subject.forward(some, one_step, double=True) for some in _with_others(x))
        return size(x) == 1 or _apart(whole.outputs[: half(x)], part.outputs[: half(x)]) <= 1e-6
    whole, part = on_fewer(subject, x, one_step, double=True)
    return size(x) == 1 or _apart(whole.outputs[: half(x)], part.outputs) <= 1e-6


def _with_others(x: Any) -> tuple[Any, Any]:
    """A few samples, and as many, of which only the first half are the same."""
    return first(x, 2 * half(x)), twice(first(x, half(x)))


def _left_whole(subject: Subject, x: Any) -> Iterator[Any]:
    """Each of several inputs that makes samples independent if it is not cut into them."""
    places = cut_places(x)
    for place in places if len(places) > 1 else ():
        try:
            if _is_independent(subject, share(x, (place,))):
                yield place
        except WindermereError:  # a model need not take it so
            continue


def _apart(one: Tensor, other: Tensor) -> float:
    if one.shape != other.shape:
        return inf
    return float((one - other).abs().max() / one.abs().max().clamp_min(1e-30))
