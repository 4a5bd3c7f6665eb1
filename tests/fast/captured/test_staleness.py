"""Whatever changes between two solves of a field, the second one is of the field as it then is."""

import enum
import functools
import random
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.fast.captured import odd_fields, settings
from tests.fast.captured.fields import Holding, TimeMLP
from tests.fast.captured.solving import Way, assert_as_uncaptured, solve
from windermere.fast.captured.path import CapturedSteps

WAYS = [
    Way(wm.FixedStep("rk4", step=1 / 2)),
    Way(wm.Adaptive("bosh32", tolerance=1e-3), options={"gradient": "adjoint"}),
    Way(wm.Adaptive("bosh32", tolerance=1e-3), graded=False),
]
Change = Callable[[Any], Any]


def base() -> Any:
    """A module whose forward reads attributes of many kinds."""
    return Holding()


class Reads(nn.Module):
    """A field of which a function says what it does."""

    def __init__(self, rate: Callable[[Any, Tensor], Tensor], **attributes: Any) -> None:
        super().__init__()
        self.rate = rate
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return self.rate(self, z)


def put(name: str, value: Any) -> Change:
    """Set an attribute, at the end of a chain of names."""
    *chain, last = name.split(".")

    def change(field: Any) -> None:
        for part in chain:
            field = getattr(field, part)
        setattr(field, last, value() if callable(value) else value)

    return change


CHANGES_OF_HOLDING: dict[str, Change] = {
    "a number": put("scale", 0.75),
    "minus zero": lambda field: (put("scale", 0.0)(field), put("scale", -0.0)(field)),
    "an int": put("power", 3),
    "a tensor": put("shift", lambda: torch.tensor([0.3, 0.4])),
    "a tensor in place": lambda field: field.shift.mul_(2),
    "a tensor's data": put("shift.data", lambda: torch.tensor([-0.3, 0.4])),
    "a tensor's dtype and back": lambda field: setattr(field, "shift", field.shift.float().double() * 3),
    "a nested number": put("config.gain", 0.9),
    "a nested tensor": lambda field: field.config.nested["list"].__setitem__(1, torch.tensor([2.0, 1.0])),
    "a nested list": lambda field: field.config.nested.__setitem__("list", [0, torch.tensor([3.0, 1.0])]),
    "a dataclass": put("options.alpha", 0.6),
    "a name in a tuple": lambda field: setattr(field.options, "names", ("sin",)),
    "another dataclass": lambda field: setattr(field, "options", odd_fields.Options(0.9, ("cos",))),
    "a slot": put("slotted.alpha", 0.8),
    "a NumPy array in place": lambda field: field.numbers.__setitem__(1, 2.0),
    "a NumPy number": lambda field: setattr(field, "number", np.float64(0.5)),
    "a buffer": put("matrix", lambda: torch.eye(2) * 0.25),
    "a buffer in place": lambda field: field.matrix.add_(1.0),
    "a buffer's data": put("matrix.data", lambda: torch.eye(2) * 0.75),
    "a method": lambda field: setattr(field, "forward", types.MethodType(lambda self, t, z: -z * self.scale, field)),
    "the class": lambda field: setattr(field, "__class__", OtherHolding),
    "requires_grad": lambda field: field.shift.requires_grad_(),
}


class OtherHolding(Holding):
    @property
    def total(self) -> float:
        return 2.0


class Settings:
    alpha, nested = 0.5, {"beta": 0.5}


class Deep(Settings):
    pass


@dataclass
class Lazy:
    """Gives attributes that it does not have."""

    store: dict[str, float]

    def __getattr__(self, name: str) -> float:
        return float(self.store[name])


class Named(dict):  # type: ignore[type-arg]
    """A dictionary with attributes of its own."""


class Amount(float):
    pass


class Described:
    """A descriptor with values of its own."""

    def __init__(self) -> None:
        self.value = 0.5

    def __get__(self, owner: Any, kind: Any) -> float:
        return self.value


class WithDescriptor(nn.Module):
    gain = Described()

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return z * self.gain


def counted(z: Tensor) -> Tensor:
    return z * float(vars(counted)["alpha"])


vars(counted)["alpha"] = 0.5
POWER = 2.0
DECORATED: list[float] = [0.5]


@functools.wraps(torch.nn.functional.relu)
def disguised(z: Tensor) -> Tensor:
    """It says that it is PyTorch's."""
    return z * DECORATED[0]


def outer() -> Any:
    alpha = 0.5

    def middle() -> Any:
        return lambda z: z * alpha

    def change() -> None:
        nonlocal alpha
        alpha = 0.75

    return middle(), change


inner, change_inner = outer()


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    kept = POWER, Settings.alpha, dict(Settings.nested), settings.alpha, settings.inner.beta, nn.Tanh.forward
    yield
    torch.set_default_dtype(torch.float32)
    globals()["POWER"], Settings.alpha, nested, settings.alpha, settings.inner.beta, tanh = kept
    nn.Tanh.forward = tanh  # type: ignore[method-assign]
    Settings.nested.update(nested)
    vars(counted)["alpha"], WithDescriptor.__dict__["gain"].value, DECORATED[0] = 0.5, 0.5, 0.5
    Speed.FAST.gain = 0.5
    if "flag" in vars(Reads):
        delattr(Reads, "flag")


ELSEWHERE: dict[str, tuple[Callable[[], Any], Change]] = {
    "a global": (lambda: Reads(lambda self, z: z * POWER), lambda _: globals().__setitem__("POWER", 3.0)),
    "a class's attribute": (lambda: Reads(lambda self, z: z * Settings.alpha), lambda _: setattr(Settings, "alpha", 2)),
    "a base class's dictionary": (
        lambda: Reads(lambda self, z: z * Deep().nested["beta"]),
        lambda _: Settings.nested.update(beta=2.0),
    ),
    "a held class's attribute": (
        lambda: Reads(lambda self, z: z * self.kind.alpha, kind=Deep),
        lambda _: setattr(Settings, "alpha", 2.0),
    ),
    "a module's attribute": (
        lambda: Reads(lambda self, z: z * settings.alpha),
        lambda _: setattr(settings, "alpha", 2.0),
    ),
    "a module's object": (
        lambda: Reads(lambda self, z: z * settings.inner.beta),
        lambda _: setattr(settings.inner, "beta", 2.0),
    ),
    "a held module": (
        lambda: Reads(lambda self, z: z * self.settings.alpha, settings=settings),
        lambda _: setattr(settings, "alpha", 2.0),
    ),
    "an imported module": (lambda: Reads(settings.imports), lambda _: setattr(settings, "alpha", 2.0)),
    "a function's attribute": (
        lambda: Reads(lambda self, z: counted(z)),
        lambda _: vars(counted).__setitem__("alpha", 2.0),
    ),
    "a disguised function's list": (
        lambda: Reads(lambda self, z: disguised(z)),
        lambda _: DECORATED.__setitem__(0, 2.0),
    ),
    "a closure of a closure": (lambda: Reads(lambda self, z: inner(z)), lambda _: change_inner()),
    "what __getattr__ finds": (
        lambda: Reads(lambda self, z: z * self.lazy.speed, lazy=Lazy({"speed": 0.5})),
        lambda field: field.lazy.store.update(speed=2.0),
    ),
    "a dictionary's attribute": (
        lambda: Reads(lambda self, z: z * self.named.alpha, named=put_on(Named(), alpha=0.5)),
        lambda field: setattr(field.named, "alpha", 2.0),
    ),
    "a float of another kind": (
        lambda: Reads(lambda self, z: z * float(self.amount), amount=Amount(0.5)),
        lambda field: setattr(field, "amount", Amount(2.0)),
    ),
    "a descriptor's value": (WithDescriptor, lambda _: setattr(WithDescriptor.__dict__["gain"], "value", 2.0)),
    "PyTorch's own class": (
        lambda: Reads(lambda self, z: self.layer(z), layer=nn.Tanh()),
        lambda _: setattr(nn.Tanh, "forward", lambda self, z: z * POWER),
    ),
    "a partial's argument": (
        lambda: Reads(lambda self, z: self.by(z), by=functools.partial(torch.mul, other=0.5)),
        lambda field: field.by.keywords.update(other=2.0),
    ),
    "a list's order": (
        lambda: Reads(lambda self, z: functools.reduce(lambda x, f: f(x), self.fs, z), fs=[torch.sin, torch.exp]),
        lambda field: field.fs.reverse(),
    ),
    "a seldom branch": (
        lambda: Reads(lambda self, z: z if random.random() < 2 else -z),
        lambda _: None,
    ),
    "a default argument": (
        lambda: Reads(settings.with_default),
        lambda _: setattr(settings.with_default, "__defaults__", (2.0,)),
    ),
    "the default dtype": (
        lambda: Reads(lambda self, z: z * torch.ones(1, device=z.device).mul(1 / 3)),
        lambda _: torch.set_default_dtype(torch.float32),
    ),
}


ELSEWHERE |= {
    "how often a weight was written to": (
        lambda: called(Reads(made_once, layer=nn.Linear(2, 2), made={})),
        lambda field: torch.no_grad()(field.layer.weight.mul_)(2),
    ),
    "whether a weight has a gradient": (
        lambda: Reads(lambda self, z: z if self.layer.weight.grad is None else -z, layer=nn.Linear(2, 2)),
        lambda field: setattr(field.layer.weight, "grad", torch.ones(2, 2)),
    ),
    "a member of an enumeration": (
        lambda: Reads(lambda self, z: z * self.speed.gain, speed=Speed.FAST),
        lambda _: setattr(Speed.FAST, "gain", 2.0),
    ),
    "an attribute of any name": (
        lambda: Reads(lambda self, z: z if hasattr(self, "".join("flag")) else -z),
        lambda _: setattr(Reads, "flag", True),
    ),
    "numbers that a field takes to Python": (
        lambda: Reads(lambda self, z: z * sum(self.numbers.tolist()), numbers=torch.ones(2, device="cpu")),
        lambda field: field.numbers.mul_(2),
    ),
}


class Speed(enum.Enum):
    FAST = 0.5

    def __init__(self, gain: float) -> None:
        self.gain = gain


def made_once(field: Any, z: Tensor) -> Any:
    """What is made of a weight, anew after each time that it was written to."""
    weight = field.layer.weight
    if weight._version not in field.made:
        field.made = {weight._version: weight.detach().exp()}
    return z @ field.made[weight._version]


def called(field: Any) -> Any:
    field(torch.zeros(()), torch.zeros(1, 2))
    return field


def put_on(value: Any, **attributes: Any) -> Any:
    vars(value).update(attributes)
    return value


def assert_follows(make: Callable[[], Any], change: Change, way: Way, device: str) -> None:
    with torch.device(device):
        field, z = make(), torch.tensor([[0.5, -0.3], [0.2, 0.4]])
        assert_as_uncaptured(field, z, way)
        change(field)
    assert_as_uncaptured(field, z, way)


@pytest.mark.parametrize("way", WAYS, ids=["fixed", "adjoint", "without gradient"])
@pytest.mark.parametrize("name", CHANGES_OF_HOLDING)
def test_a_changed_attribute_is_followed(name: str, way: Way, path: CapturedSteps, device: str) -> None:
    assert_follows(base, CHANGES_OF_HOLDING[name], way, device)
    assert path.shelf.known


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_changes_elsewhere_is_followed(name: str, path: CapturedSteps, device: str) -> None:
    assert_follows(*ELSEWHERE[name], WAYS[0], device)


def test_code_in_the_place_of_other_code_is_another_field(path: CapturedSteps) -> None:
    z = torch.ones(2, 2)
    for number in range(20):  # each function's memory may be that of the one before
        space: dict[str, Any] = {}
        exec(f"def f(t, z): return z * {number}.0", space)
        assert_as_uncaptured(space.pop("f"), z.to(path.devices[0]), WAYS[2])


def test_settings_of_pytorch_ask_for_another_capture(path: CapturedSteps, device: str) -> None:
    field = TimeMLP().to(device)
    kept = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high"):
            torch.set_float32_matmul_precision(precision)
            solve(field, torch.ones(2, 2, device=device), WAYS[0].solver)
    finally:
        torch.set_float32_matmul_precision(kept)
    assert len(path.shelf.captures) == 2


def test_ways_to_set_them_may_be_mixed(path: CapturedSteps, device: str) -> None:
    matmul = torch.backends.cuda.matmul
    kept = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"  # from now on, PyTorch refuses to be asked for `allow_tf32`
        solve(TimeMLP().to(device), torch.ones(2, 2, device=device), WAYS[0].solver)
    finally:
        matmul.fp32_precision = kept
