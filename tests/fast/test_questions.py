"""What a field asks of tensors beside their numbers, or does to them beside operations, is as in each solve."""

import enum
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.fast.ends import end, slow
from tests.fast.spheres import DOUBLE, samples
from windermere.fast.fingerprint import fingerprint
from windermere.fast.look import UnknownFieldError

pytestmark = pytest.mark.usefixtures("fresh_programs")

Rate = Callable[[Any, Tensor], Any]
Change = Callable[[Any], Any]


class Held(nn.Module):
    """A field with a parameter and a buffer, and what it keeps from one call to the next."""

    kept: Tensor

    def __init__(self, rate: Rate) -> None:
        super().__init__()
        self.rate, self.seen, self.made = rate, None, torch.zeros(())
        self.weight = nn.Parameter(torch.full((2,), 0.5, dtype=DOUBLE))
        self.register_buffer("kept", torch.tensor([1.0, 2.0], dtype=DOUBLE))
        self.gain = torch.tensor(0.5, dtype=DOUBLE)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.rate(self, z)

    def made_for(self, key: Any) -> Tensor:
        """Made of the parameter, once for each key."""
        if self.seen != key:
            self.seen, self.made = key, self.weight.detach().exp()
        return self.made


class Row:
    """A sequence of numbers of no kind that PyTorch knows."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, k: int) -> Tensor:
        return self.numbers[k]


def double(field: Any) -> None:
    field.weight.mul_(2)
    field.kept.mul_(2)
    field.gain.mul_(2)


def share(field: Any) -> None:
    field.weight.share_memory_()


def move(field: Any) -> None:
    field.weight.data = 3 * field.weight.data


def replace(field: Any) -> None:
    field.weight = nn.Parameter(3 * field.weight)


def slope(field: Any) -> None:
    field.weight.grad = torch.ones_like(field.weight)


ASKED: list[tuple[Rate, Change]] = [
    (lambda f, z: -z * f.made_for(f.weight._version), double),
    (lambda f, z: -z * f.made_for(f.weight.data_ptr()), move),
    (lambda f, z: -z * f.made_for(f.weight.untyped_storage().data_ptr()), move),
    (lambda f, z: -z * f.made_for(id(f.weight)), replace),
    (lambda f, z: -z * f.made_for(hash(f.weight)), replace),
    (lambda f, z: -z if f.weight.grad is None else z, slope),
    (lambda f, z: z if f.weight.is_shared() else -z, share),
    (lambda f, z: -z * torch.tensor([f.kept[0], 1.0], dtype=DOUBLE), double),
    (lambda f, z: -z * torch.tensor([[*f.kept]], dtype=DOUBLE), double),
    (lambda f, z: -z * z.new_tensor(list(f.kept)), double),
    (lambda f, z: -z * torch.as_tensor((f.kept[0], 1.0), dtype=DOUBLE), double),
    (lambda f, z: -z * torch.asarray([f.kept[0], 1.0], dtype=DOUBLE), double),
    (lambda f, z: -z * torch.tensor(Row(f.kept), dtype=DOUBLE), double),
    (lambda f, z: -z if "0.5" in str(f.gain) else z, double),
]


@torch.no_grad()
@pytest.mark.parametrize(("rate", "change"), ASKED)
def test_what_a_field_asks_of_a_tensor_is_answered_anew(rate: Rate, change: Change) -> None:
    field, z = Held(rate), samples(6, 2)
    slow(field, z)
    torch.testing.assert_close(end(field, z), slow(field, z))
    change(field)
    torch.testing.assert_close(end(field, z), slow(field, z))


def counting_in_numpy(field: Any, z: Tensor) -> Tensor:
    field.kept.numpy()[0] += 1
    return -z


def adding_to_gradients(field: Any, z: Tensor) -> Any:
    with torch.enable_grad():
        x = z.detach().requires_grad_()
        (field.weight * x).square().sum().backward()
    return x.grad


def adding_to_gradients_by_name(field: Any, z: Tensor) -> Tensor:
    with torch.enable_grad():
        torch.autograd.backward((field.weight * z).square().sum(), inputs=[field.weight])
    return -z


def setting_gradients(field: Any, z: Tensor) -> Tensor:
    field.weight.grad = torch.ones_like(field.weight) if field.weight.grad is None else field.weight.grad + 1
    return -z


def freezing(field: Any, z: Tensor) -> Any:
    field.weight.requires_grad_(not field.weight.requires_grad)
    return -z * field.weight


def hooking(field: Any, z: Tensor) -> Any:
    field.weight.register_hook(lambda on: on)
    return -z * field.weight


def asserting(field: Any, z: Tensor) -> Tensor:
    torch._assert_async((z.abs() < 10).all())
    return -z


LEAVING: list[Rate] = [
    *(counting_in_numpy, adding_to_gradients, adding_to_gradients_by_name, setting_gradients, freezing, hooking),
]


@pytest.mark.parametrize("rate", LEAVING)
def test_what_a_field_leaves_in_a_tensor_it_leaves_as_often_as_step_by_step(rate: Rate, taken: list[str]) -> None:
    left = []
    for solved in (end, slow):
        field = Held(rate)
        for _ in range(2):
            solved(field, samples(6, 2))
        weight = field.weight
        left.append((field.kept.tolist(), str(weight.grad), weight.requires_grad, len(weight._backward_hooks or ())))
    assert left[0] == left[1]
    assert taken == []


def with_other_data(z: Tensor) -> Tensor:
    x = 1.0 * z
    x.data = 3 * torch.tanh(z)
    return x


ABOVE_1 = 4607182418800017408
"""1.0, its bits read as a whole number."""
UNSEEN: list[Callable[[Tensor], Tensor]] = [
    *(lambda z: z.clone().apply_(math.tanh), lambda z: z.clone().map_(z, lambda a, b: a * b), with_other_data),
    lambda z: torch.where(z.abs().view(torch.int64) > ABOVE_1, z, -z),
]


@torch.no_grad()
@pytest.mark.parametrize("branch", UNSEEN)
def test_what_no_operation_shows_is_done_where_the_field_was_not_watched(branch: Callable[[Tensor], Tensor]) -> None:
    def field(t: Tensor, z: Tensor) -> Tensor:
        return torch.where(z > 0, -z, branch(z))

    end(field, 1 + samples(6, 2).abs())
    z = -2 - samples(6, 2).abs()
    torch.testing.assert_close(end(field, z), slow(field, z))


def test_what_is_asserted_of_a_state_is_asserted_in_each_solve() -> None:
    field = Held(asserting)
    end(field, samples(6, 2))
    with pytest.raises(RuntimeError, match="nonzero"):
        end(field, 100 + samples(6, 2))


class Choice(enum.Enum):
    NUMBER = 1.0
    SETTINGS = {"gain": 1.0}  # noqa: RUF012

    def __init__(self, value: Any) -> None:
        self.gain = 1.0

    def times(self, z: Tensor) -> Tensor:
        return FACTOR * z


FACTOR = 1.0
CHOICES: list[tuple[Rate, Callable[[pytest.MonkeyPatch], None]]] = [
    (lambda f, z: -f.choice.times(z), lambda patch: patch.setitem(globals(), "FACTOR", 2.0)),
    (lambda f, z: -z * f.choice.gain, lambda patch: patch.setattr(Choice.NUMBER, "gain", 2.0)),
    (lambda f, z: -z * f.settings.value["gain"], lambda patch: patch.setitem(Choice.SETTINGS.value, "gain", 2.0)),
]


@pytest.mark.parametrize(("rate", "change"), CHOICES)
def test_what_a_member_of_an_enumeration_does_is_followed(
    rate: Rate, change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, taken: list[str]
) -> None:
    field: Any = Held(rate)
    z = samples(6, 2)
    field.choice, field.settings = Choice.NUMBER, Choice.SETTINGS
    end(field, z)
    change(monkeypatch)
    torch.testing.assert_close(end(field, z), slow(field, z))
    assert taken == ["there"] * 2


def test_whether_there_is_an_attribute_is_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    field, name = Held(lambda f, z: -z), "".join("flag")
    field.rate = lambda f, z: z if hasattr(f, name) else -z
    before = fingerprint(field).key
    monkeypatch.setattr(Held, "flag", True, raising=False)
    assert fingerprint(field).key != before


def test_a_function_of_pythons_in_numpys_clothes_is_not_looked_into() -> None:
    field: Any = Held(lambda f, z: -z)
    field.by = np.frompyfunc(lambda x: 2 * x, 1, 1)
    with pytest.raises(UnknownFieldError, match="by way of NumPy"):
        fingerprint(field)


def test_a_field_that_asks_where_its_state_begins_is_asked_at_each_solve() -> None:
    field = Held(lambda _, z: -z if z.storage_offset() == 0 else -3 * z)
    both = samples(8, 2)
    for z in (both[:4], both[:4], both[4:]):
        assert torch.equal(end(field, z), slow(field, z))
