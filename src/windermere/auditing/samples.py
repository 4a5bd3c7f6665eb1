"""Which samples an audit looks at: a stated random subsample, or all of them, streamed batch by batch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from windermere.errors import UsageError
from windermere.nn.shared import Place, Shared, arrays_of, holds_samples, places_of, share
from windermere.solvers.layout import check_has_values

Batch: TypeAlias = tuple[Any, Any]
"""Inputs and labels; None where there are no labels."""
VALUES_AT_ONCE, AT_ONCE = 500_000, 256
PAIRS = (
    "batches must be pairs of inputs and labels (one pair, an iterable of pairs, or a torch Dataset), or inputs alone"
)


def choose(
    batches: Any, samples: int | None, seed: int, *, shared: Sequence[Place] = (), called: Any = None
) -> tuple[Iterable[Batch], str]:
    """`samples` at random from all batches (None: all of them), as batches of a size that fits, and what they are. The
    inputs named in `shared`, maybe as arguments of what is `called`, stay whole."""
    if shared and isinstance(batches, Dataset):
        raise UsageError(
            "a Dataset gives each sample inputs of its own, and none that all share: give pairs of inputs and labels, "
            "or leave shared=... out"
        )
    given = _alike(_as_batch(batch, shared, called) for batch in _as_batches(batches))
    if samples is None:
        return (piece for batch in given for piece in _pieces(batch)), "all that were given"
    kept, seen = _draw(given, samples, seed)
    population = "all that were given" if seen <= samples else f"a random subsample of {seen}, seed {seed}"
    return list(_pieces(kept)), population


def _alike(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Batches that all have labels, or none of which has."""
    labelled: bool | None = None
    for inputs, labels in batches:
        if labelled not in (None, labels is not None):
            raise UsageError("some batches have labels and others have none: give them all, or leave them all out")
        labelled = labels is not None
        yield inputs, labels


def _as_batches(given: Any) -> Iterable[Any]:
    """One pair, many, a torch Dataset of single samples, or inputs alone, which have no labels."""
    if isinstance(given, Dataset):
        return DataLoader(given, batch_size=AT_ONCE)
    if _is_array(given) or isinstance(given, Mapping):
        return [(given, None)]
    several = isinstance(given, tuple | list)
    if several and len(given) == 1 and (_is_array(given[0]) or isinstance(given[0], Mapping)):
        return [(given[0], None)]
    if several and len(given) == 2 and not all(_is_pair(each) for each in given):
        return [(given[0], given[1])]
    of_arrays = several and len(given) and hasattr(given[0], "shape")
    if of_arrays or isinstance(given, str) or not isinstance(given, Iterable):
        its_test = ": give its .test" if hasattr(given, "test") else ""
        alone = ": batches of inputs alone are [(x,), (x,)]" if of_arrays else ""
        raise UsageError(f"{PAIRS}, not {_what(given)}{its_test}{alone}")
    return given


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor) or (hasattr(value, "shape") and hasattr(value, "dtype"))


def _is_pair(value: Any) -> bool:
    """Whether two of them are two batches, and not inputs and labels."""
    return isinstance(value, tuple | list) and len(value) in (1, 2) and _has_array(value[0])


def _has_array(tree: Any) -> bool:
    return any(True for _ in arrays_of(tree))


def first(x: Any, samples: int) -> Any:
    """The first samples of inputs: an array, or a tuple or dict of arrays."""
    return _each(lambda leaf: leaf[:samples], x)


def twice(x: Any) -> Any:
    """Every sample a second time, after all of them."""
    return _each(lambda leaf: _concatenate(leaf, leaf), x)


def size(x: Any) -> int:
    """How many samples there are."""
    return len(next(arrays_of(x)))


def _each(function: Callable[..., Any], *trees: Any) -> Any:
    """A function of arrays with samples, for tuples and dicts of them too; what samples share stays as it is."""
    tree = trees[0]
    if isinstance(tree, Mapping):
        return {key: _each(function, *(t[key] for t in trees)) for key in tree}
    if isinstance(tree, tuple | list):
        return tuple(_each(function, *parts) for parts in zip(*trees, strict=True))
    return function(*trees) if holds_samples(tree) else _same(*trees)


def _same(one: Any, *others: Any) -> Any:
    """What all samples share, if it is the same in all batches."""
    value, *rest = (each.value if isinstance(each, Shared) else each for each in (one, *others))
    if not all(_equal(value, other) for other in rest):
        raise UsageError(
            "an input that all samples share differs between batches, so that samples cannot be drawn from all of "
            "them: give samples=None, which takes all, batch by batch"
        )
    return one


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping | tuple | list):
        parts, others = places_of(one), places_of(other)
        return parts.keys() == others.keys() and all(_equal(part, others[place]) for place, part in parts.items())
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        one, other = one.detach().cpu().numpy(), other.detach().cpu().numpy()
    return one is other or bool(np.array_equal(one, other))


def _draw(batches: Iterable[Batch], samples: int, seed: int) -> tuple[Batch, int]:
    """One pass, keeping the samples with the smallest random keys so far: memory does not grow with the data."""
    generator = np.random.default_rng(seed)
    kept: Any = None
    keys, seen = np.zeros(0), 0
    for pair in batches:
        seen += size(pair[0])
        keys = np.concatenate([keys, generator.random(size(pair[0]))])
        kept = pair if kept is None else _each(_concatenate, kept, pair)
        if len(keys) > samples:
            best = np.sort(np.argpartition(keys, samples)[:samples])
            keys, kept = keys[best], _each(lambda leaf, best=best: leaf[best], kept)
    if seen == 0:
        raise UsageError("an audit needs samples, but there are none in the batches given")
    return kept, seen


def _as_batch(batch: Any, shared: Sequence[Place], called: Any) -> Batch:
    if _is_array(batch) or isinstance(batch, Mapping):
        batch = batch, None
    elif isinstance(batch, tuple | list) and len(batch) == 1:
        batch = batch[0], None
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        several = ": several inputs are a tuple, as in ((x, t), labels)" if isinstance(batch, tuple | list) else ""
        raise UsageError(f"{PAIRS}, not {_what(batch)}{several}")
    inputs, labels = share(batch[0], shared, called), _targets(batch[1])
    if not _has_array(inputs) or not (labels is None or np.ndim(labels)):
        raise UsageError(
            "inputs and labels must be tensors or arrays with samples along their first axis: give single samples as a "
            "torch Dataset or in a DataLoader"
        )
    for array in arrays_of(inputs):
        if isinstance(array, Tensor):
            check_has_values("an input of a batch", array)
    _check_sizes(inputs, size(inputs) if labels is None else len(labels), "inputs" if labels is None else "labels")
    return inputs, labels


def _check_sizes(inputs: Any, samples: int, counted: str) -> None:
    """Every array that is cut into samples has all of them, as many as were counted."""
    sizes = {place: {len(array) for array in arrays_of(part)} for place, part in places_of(inputs).items()}
    found = set().union(*sizes.values())
    if found == {samples}:
        return
    if len(found) == 1:
        raise UsageError(
            f"a batch has {size(inputs)} inputs but {samples} labels, or targets: both have the samples along their "
            "first axis, time series too"
        )
    place, wrong = next((place, sizes[place] - {samples}) for place in sizes if sizes[place] - {samples})
    has = f"{wrong.pop()} entries along its first axis, but there are {samples} {counted}"
    if samples in sizes[place]:
        raise UsageError(
            f"an array inside of the input {place!r} of a batch has {has}: if all samples share it, make it an input "
            "of its own, and name that by shared=..."
        )
    raise UsageError(f"the input {place!r} of a batch has {has}: if all samples share it, give shared=({place!r},)")


def _what(batch: Any) -> str:
    many = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
    return f"a {type(batch).__name__}{many}"


def _targets(labels: Any) -> Any:
    """As a tensor on the CPU, as outputs are, wherever they come from; what is no number stays for a metric to read."""
    if labels is None:
        return None
    if isinstance(labels, Tensor):
        check_has_values("the tensor of labels", labels)
        return labels.detach().cpu()
    values = np.asarray(labels)
    kind = values.dtype.kind
    if kind not in "biuf":
        return values
    known = bool if kind == "b" else f"{kind}{min(values.itemsize, 8)}"  # PyTorch has no longdouble, no foreign bytes
    return torch.as_tensor(values.astype(known))


def _concatenate(one: Any, other: Any) -> Any:
    if one.shape[1:] != other.shape[1:]:
        raise UsageError(
            f"samples of shapes {list(one.shape[1:])} and {list(other.shape[1:])} cannot be drawn together: pad them, "
            "or give samples=None, which takes all, batch by batch"
        )
    if isinstance(one, Tensor):
        return torch.cat([one, other])
    return np.concatenate([np.asarray(one), np.asarray(other)])


def _pieces(batch: Batch) -> Iterator[Batch]:
    """Pieces that fit, as even as can be: a model may squeeze away the axis of a single sample that is left over."""
    inputs, labels = batch
    width, samples = max(1, int(np.prod(next(arrays_of(inputs)).shape[1:]))), size(inputs)
    count = ceil(samples / max(1, min(1000, VALUES_AT_ONCE // width)))
    for start, end in pairwise(samples * k // max(1, count) for k in range(count + 1)):
        yield _each(lambda leaf, start=start, end=end: leaf[start:end], (inputs, labels))
