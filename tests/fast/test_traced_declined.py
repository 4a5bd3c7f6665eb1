"""Which fields are left to PyTorch: those that do more than a computation on rows."""

from collections import ChainMap, UserDict
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import windermere as wm
from tests.fast.ends import end, slow
from tests.fast.fields import Rounding, WithTime, made
from tests.fast.layers import network
from tests.fast.spheres import DOUBLE, samples

pytestmark = pytest.mark.usefixtures("fresh_programs")


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network, self.calls, self.log = network(2, 5, 2), 0, list[int]()

    def forward(self, t: Tensor, z: Tensor) -> Any:
        self.calls += 1
        self.log.append(self.calls)
        return self.network(z)


def test_a_field_that_counts_its_calls_is_called(taken: list[str]) -> None:
    field = Counting()
    for solves in (1, 2, 3):
        end(field, samples(6, 2))
        assert (field.calls, field.log) == (4 * solves, list(range(1, 4 * solves + 1)))
    assert taken == []


def test_a_function_that_writes_to_what_is_around_it_is_called(taken: list[str]) -> None:
    calls, times = 0, list[float]()

    def counting(t: Tensor, z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return -z

    end(counting, samples(6, 2))

    def noting(t: Tensor, z: Tensor) -> Tensor:
        times.append(0.0)
        return -z

    end(noting, samples(6, 2))
    assert (calls, len(times), taken) == (4, 4, [])


@dataclass(slots=True)
class Calls:
    calls: int = 0
    last: int = field(init=False)


def test_calls_that_are_counted_in_slots_are_those_of_a_solve_step_by_step(taken: list[str]) -> None:
    log = Calls()

    def counting(t: Tensor, z: Tensor) -> Tensor:
        log.calls += 1
        log.last = log.calls + getattr(log, "last", 0)
        return -z

    end(counting, samples(6, 2))
    assert (log.calls, log.last, taken) == (4, 1 + 2 + 3 + 4, [])


@pytest.mark.parametrize("log", [UserDict(calls=0), ChainMap({"calls": 0})])
def test_so_are_those_in_mappings_of_pythons_own(log: MutableMapping[str, int], taken: list[str]) -> None:
    def counting(t: Tensor, z: Tensor) -> Tensor:
        log["calls"] += 1
        return -z

    end(counting, samples(6, 2))
    assert (log["calls"], taken) == (4, [])


KEPT, MARKED = torch.zeros(2, dtype=DOUBLE), False


def in_numpy(t: Tensor, z: Tensor) -> Tensor:
    return torch.from_numpy(-np.asarray(z.detach()))


def stopped(t: Tensor, z: Tensor) -> Tensor:
    return z * z.detach()


def kept(t: Tensor, z: Tensor) -> Tensor:
    KEPT.add_(1)
    return -z * KEPT


def kept_if_that_can_be(t: Tensor, z: Tensor) -> Tensor:
    try:
        KEPT.add_(1)
    except Exception:  # noqa: BLE001
        return -z
    return -z * KEPT


def counted_if_that_can_be(t: Tensor, z: Tensor) -> Tensor:
    with suppress(Exception):
        KEPT.add_(1)
    return -z * KEPT


def rounded(t: Tensor, z: Tensor) -> Any:
    return Rounding.apply(z)  # type: ignore[no-untyped-call]


def talking(t: Tensor, z: Tensor) -> Tensor:
    print("here")
    return -z


say, moment = print, datetime


def saying(t: Tensor, z: Tensor) -> Tensor:
    say("here")
    return -z


def dated(t: Tensor, z: Tensor) -> Tensor:
    return -z * (moment.now().year > 2000)


def marking(t: Tensor, z: Tensor) -> Tensor:
    global MARKED
    MARKED = True
    return -z


DECLINED: list[Callable[[Tensor, Tensor], Tensor]] = [
    *(lambda t, z: z * float(t), lambda t, z: -z if t < 0.5 else z, lambda t, z: -z if z.sum() > 0 else z),
    *(lambda t, z: -z + 0 * torch.randn_like(z), lambda t, z: functional.dropout(z, 0.0 + 1e-9) - z),
    *(lambda t, z: z - z.mean(0), lambda t, z: z @ z.t() @ z, lambda t, z: z.flip(0), lambda t, z: z.cumsum(0)),
    *(lambda t, z: torch.softmax(z, 0), lambda t, z: z[torch.argsort(z[:, 0])], lambda t, z: z.float().double()),
    *(
        in_numpy,
        stopped,
        kept,
        kept_if_that_can_be,
        counted_if_that_can_be,
        talking,
        saying,
        dated,
        marking,
        rounded,
        lambda t, z: z * torch.arange(6.0).double()[:, None],
    ),
]


@pytest.mark.parametrize("field", DECLINED)
def test_what_is_more_than_a_computation_on_rows_is_left_to_pytorch(field: Any, taken: list[str]) -> None:
    KEPT.zero_()
    z = samples(6, 2).requires_grad_()
    torch.manual_seed(0)
    found = end(field, z)
    KEPT.zero_()
    torch.manual_seed(0)
    wanted = slow(field, z)
    assert torch.equal(found, wanted)
    assert taken == []


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(2), nn.Dropout(0.5)])
def test_so_is_a_layer_in_training_that_is_another_thing_each_time(layer: nn.Module, taken: list[str]) -> None:
    net = nn.Sequential(nn.Linear(2, 2), layer).to(DOUBLE)
    end(wm.Autonomous(net), samples(6, 2))
    assert taken == []


def test_a_field_that_raises_does_so_as_ever() -> None:
    def raising(t: Tensor, z: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        end(raising, samples(6, 2))


def test_a_compiled_field_is_left_alone(taken: list[str]) -> None:
    field = made(WithTime)
    field._orig_mod = nn.Identity()  # as torch.compile names what it has compiled
    end(field, samples(6, 2))
    assert taken == []


def test_fast_paths_can_be_turned_off(taken: list[str]) -> None:
    slow(made(WithTime), samples(6, 2))
    assert taken == []
