"""What can be looked into, and what cannot; changes that are noticed are tested with captured solves."""

import abc
import argparse
import builtins
import contextlib
import enum
import functools
import logging
import math
import operator
import os
import threading
import time
import weakref
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest
import torch
from torch import Tensor, nn

from windermere.fast.code import is_fixed, names_of
from windermere.fast.fingerprint import fingerprint
from windermere.fast.look import UnknownFieldError

args = argparse.Namespace(alpha=0.5)
data = threading.Lock()
T = TypeVar("T")
Pair = namedtuple("Pair", "first second")


class Kind(enum.Enum):
    FAST = 2.0


@dataclass(slots=True, frozen=True)
class Slotted:
    alpha: float


class Base(abc.ABC, nn.Module, Generic[T]):
    @abc.abstractmethod
    def scale(self) -> Any: ...

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return z * float(self.scale())


class Field(Base[int]):
    """A field with much that its calls do not use."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        vars(self).update(attributes)
        self.layers = nn.ModuleList([nn.Linear(2, 2)])
        self.weights = nn.ParameterDict({"w": nn.Parameter(torch.ones(2))})
        self.data = 0.5  # not the global one

    def scale(self) -> Any:
        return args.alpha * self.data * math.sqrt(2)

    def report(self) -> None:
        print(os.getcwd(), time.time(), data)


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*given: Any) -> Any:
        return function(*given)

    return wrapped


@torch.enable_grad()
def graded(t: Tensor, z: Tensor) -> Tensor:
    return -z


@logged
def decorated(t: Tensor, z: Tensor) -> Tensor:
    return functools.reduce(torch.add, [z, z])


HELD = [
    Slotted(0.5),
    Pair(1.0, torch.ones(1)),
    Kind.FAST,
    SimpleNamespace(inner=[{"a": (1, 2)}]),
    OrderedDict(a=1),
    {1, "two"},
    slice(0, 2),
    torch.Size([2]),
    torch.tanh,
    torch.nn.functional.gelu,
    functools.partial(torch.add, alpha=2),
    nn.Identity,
    lambda z: z,
]


@pytest.mark.parametrize("value", HELD, ids=lambda value: type(value).__name__)
def test_what_fields_commonly_hold_is_looked_into(value: Any) -> None:
    field = Field(value=value)
    assert fingerprint(field).key == fingerprint(field).key
    assert fingerprint(field).key != fingerprint(Field()).key


MODULES = [nn.GRUCell(2, 2), nn.TransformerEncoderLayer(4, 1), nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))]


@pytest.mark.parametrize("field", [graded, decorated, Field().forward, *MODULES])
def test_so_are_functions_and_modules_of_pytorch(field: Any) -> None:
    assert fingerprint(field).key == fingerprint(field).key


def test_methods_that_no_call_names_do_not_matter() -> None:
    field = Field()
    before = fingerprint(field).key
    kept = Field.report
    Field.report = lambda self: None  # type: ignore[method-assign]
    try:
        assert fingerprint(field).key == before
    finally:
        Field.report = kept  # type: ignore[method-assign]


class Named:
    """A field that has an attribute of its class only by its name."""

    gain = 2.0
    __match_args__ = ("gain",)

    def __init__(self, way: Callable[["Named"], float]) -> None:
        self.way = way

    def __call__(self, t: Tensor, z: Tensor) -> Tensor:
        return self.way(self) * z


def matched(field: Named) -> float:
    match field:
        case Named(gain):
            return gain


pick = operator.attrgetter
WAYS: list[Callable[[Named], float]] = [
    *(lambda field: operator.attrgetter("gain")(field), lambda field: pick("gain")(field), matched),
    *(lambda field: object.__getattribute__(field, "gain"), lambda field: type(field).__dict__["gain"]),
    *(lambda field: getattr(field, "gain"), lambda field: builtins.getattr(field, "gain")),  # noqa: B009
]


@pytest.mark.parametrize("way", WAYS)
def test_an_attribute_that_is_asked_for_by_its_name_is_looked_at(
    way: Callable[[Named], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(Named(way)).key
    monkeypatch.setattr(Named, "gain", 3.0)
    assert fingerprint(Named(way)).key != before


class Meta(type):
    pass


class Strange(metaclass=Meta):
    pass


@pytest.mark.parametrize(
    "value",
    [
        threading.Lock(),
        threading.local(),
        weakref.ref(Kind),
        deque([1]),
        iter([1]),
        logging.getLogger(__name__),
        torch.Generator(),
        torch.ones(2).to_sparse(),
        torch.ones(2, device="meta"),
        functools.lru_cache(lambda z: z),
        contextlib.nullcontext(),
        os,
        time.time,
        [1].append,
        memoryview(b"a"),
        Strange(),
        {Slotted(0.5)},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_might_hold_anything_is_not(value: Any) -> None:
    if isinstance(value, type([].append)) and value.__name__ == "append":
        fingerprint(Field(value=value))  # the list is looked into
        return
    with pytest.raises(UnknownFieldError):
        fingerprint(Field(value=value))


def speaks(t: Tensor, z: Tensor) -> Tensor:
    print("here")
    return z


def clocked(t: Tensor, z: Tensor) -> Tensor:
    return z * time.time()


def imports(t: Tensor, z: Tensor) -> Tensor:
    import random

    return z * random.random()


def locked(t: Tensor, z: Tensor) -> Tensor:
    with data:
        return z


@pytest.mark.parametrize("field", [speaks, clocked, imports, locked, lambda t, z: z * os.getpid()])
def test_nor_is_code_that_does_more_than_compute(field: Any) -> None:
    with pytest.raises(UnknownFieldError):
        fingerprint(field)


@pytest.mark.parametrize(
    ("line", "module"),
    [("from math import pi", "math"), ("from .math import pi", ".math"), ("from .. import pi", "..")],
)
def test_a_module_of_its_own_package_is_not_that_of_python_with_its_name(line: str, module: str) -> None:
    (found,) = names_of(compile(line, "field.py", "exec")).imports
    assert (found, is_fixed(found)) == (module, module == "math")


def test_an_endless_field_is_not_looked_into_for_ever() -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(UnknownFieldError, match="too much"):
        fingerprint(Field(value=deep))
    round_: list[Any] = []
    round_.append(round_)
    assert fingerprint(Field(value=round_)).key
