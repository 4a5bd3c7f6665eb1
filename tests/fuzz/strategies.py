"""What Windermere may be given: mostly what makes sense, at its edges too, and now and then what makes none."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor, nn

from tests.fast.fields import KINDS
from tests.solvers.fields import coupled
from windermere.paper.architectures import SphereField, initialise
from windermere.solvers import METHODS, Adaptive, FixedStep, OnGrid, adaptive_names

ODD: SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, "", "x", "1e-3", b"1", [], (), {}, [1, 2], nan, inf, -inf, 0, -0.0, -1, 5e-324, 1e-300, 1e300),
        *(2**63, -(2**63), 10**400, 1j, torch.tensor([1.0, 2.0]), torch.tensor(nan), torch.zeros(0), object),
    ]
)
"""What is no precision, no time and no setting, or hardly one."""


def mostly(sound: SearchStrategy[Any], odd: SearchStrategy[Any] = ODD, *, every: int = 12) -> SearchStrategy[Any]:
    """The first strategy, and once in so many draws the second."""
    return st.integers(1, every).flatmap(lambda n: odd if n == every else sound)


# ---------------------------------------------------------------------------------------------------------
# Solvers and times

methods = st.sampled_from(sorted(METHODS))
adaptive_methods = st.sampled_from(sorted(adaptive_names()))
steps = st.one_of(
    st.integers(1, 16).map(lambda n: 1 / n),
    st.floats(0.07, 3.0),
    st.sampled_from([1 / 3, 0.1, 0.30000000000000004, 1 - 1e-9, 1 + 1e-9, 5.0, 1e3]),
)
tolerances = st.one_of(st.floats(-8, -0.5).map(lambda e: 10**e), st.sampled_from([1e-12, 1e-16, 1.0, 10.0]))


@st.composite
def risen(draw: Any, least: int = 2, most: int = 6) -> tuple[float, ...]:
    """Times that rise or fall, some of them close together."""
    gaps = draw(st.lists(st.one_of(st.floats(0.02, 0.9), st.just(1e-7)), min_size=least - 1, max_size=most - 1))
    times = [draw(st.sampled_from([0.0, 0.0, -1.0, 0.3, 7.5]))]
    for gap in gaps:
        times.append(times[-1] + gap)
    return tuple(times[::-1] if draw(st.booleans()) else times)


times = mostly(st.one_of(st.none(), risen()), st.one_of(ODD, st.lists(mostly(st.floats(-1, 1)), max_size=4)))


@dataclass(frozen=True)
class Recipe:
    """A call that has not been made yet, since it may be refused."""

    kind: Callable[..., Any]
    given: tuple[Any, ...]
    named: Mapping[str, Any]

    def made(self) -> Any:
        return self.kind(*self.given, **self.named)


@st.composite
def fixed_solvers(draw: Any) -> Recipe:
    if draw(st.integers(0, 3)) == 0:
        return Recipe(OnGrid, (draw(methods), draw(mostly(risen()))), {})
    return Recipe(FixedStep, (draw(methods),), {"step": draw(mostly(steps))})


@st.composite
def adaptive_solvers(draw: Any) -> Recipe:
    some = mostly(st.one_of(tolerances, tolerances, st.just(0.0)))
    named = {"tolerance": draw(mostly(tolerances))} if draw(st.booleans()) else {"rtol": draw(some), "atol": draw(some)}
    named["control"] = draw(st.sampled_from(["batch", "batch", "sample"]))
    named["max_steps"] = draw(mostly(st.sampled_from([400, 400, 7, 1]), st.sampled_from([0, -1, 1.5, "x", None])))
    return Recipe(Adaptive, (draw(adaptive_methods),), named)


# ---------------------------------------------------------------------------------------------------------
# Fields and states


class Plain:
    """A field that no fast path knows."""

    def __call__(self, t: Tensor, z: Tensor) -> Tensor:
        return coupled(t, z)


def _sphere() -> nn.Module:
    return initialise(SphereField(2, width=6), 3)


FIELDS: list[tuple[Callable[[], Any], tuple[int, ...]]] = [*KINDS, (_sphere, (2,)), (_sphere, (2,)), (Plain, (2,))]
scales = st.sampled_from([1.0, 1.0, 1.0, 1.0, 0.0, 1e-4, 30.0, 1e20, nan])
dtypes = st.sampled_from([torch.float64, torch.float64, torch.float32])


@st.composite
def problems(draw: Any) -> tuple[Any, Any]:
    """A field and a state that it takes, of 1 to 5 samples."""
    kind, widths = draw(st.sampled_from(FIELDS))
    dtype, samples, scale = draw(dtypes), draw(st.integers(1, 5)), draw(scales)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    torch.manual_seed(3)
    field = kind()
    if isinstance(field, nn.Module):
        field = field.to(dtype)
    parts = tuple(scale * torch.randn(samples, width, generator=generator, dtype=dtype) for width in widths)
    return field, parts[0] if len(parts) == 1 else parts


# ---------------------------------------------------------------------------------------------------------
# JSON, and files

names = st.text("abcdefgh_", min_size=1, max_size=8)
json_leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
json_values = st.recursive(
    json_leaves, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3))
)


@st.composite
def altered(draw: Any, value: Any) -> Any:
    """JSON with one place in it taken away or replaced by something else."""
    if isinstance(value, dict) and value and draw(st.integers(0, 7)):
        name = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 5)) == 0:
            return {key: each for key, each in value.items() if key != name}
        return {**value, name: draw(altered(value[name]))}
    if isinstance(value, list) and value and draw(st.integers(0, 7)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], draw(altered(value[place])), *value[place + 1 :]]
    return draw(json_values)
