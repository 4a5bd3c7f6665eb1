"""What a field's program is, and when it is found again: whoever changes a field gets what they changed."""

import builtins
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

import windermere as wm
from tests.fast.ends import EULER, end, slow
from tests.fast.fields import WithTime, made
from tests.fast.layers import network
from tests.fast.spheres import DOUBLE, assert_same, samples
from tests.threads import run_together
from windermere.fast import program, trace, traced

pytestmark = pytest.mark.usefixtures("fresh_programs")


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each field that was watched."""
    seen: list[int] = []

    def watched(*given: Any) -> Any:
        seen.append(len(seen))
        return trace.trace(*given)

    monkeypatch.setattr(traced, "trace", watched)
    return seen


# Operations, one by one

UNARY: list[Callable[[Tensor], Tensor]] = [
    *(torch.relu, torch.tanh, torch.sigmoid, torch.sin, torch.cos, torch.exp, torch.abs, torch.erf, torch.square),
    *(functional.leaky_relu, functional.softplus, functional.elu, functional.silu, functional.mish, functional.gelu),
    *(partial(functional.gelu, approximate="tanh"), partial(functional.elu, alpha=0.3), torch.selu),
    *(partial(functional.softplus, beta=3.0), partial(functional.leaky_relu, negative_slope=0.4), torch.neg),
    *(lambda x: torch.log(x.abs() + 0.1), lambda x: torch.sqrt(x.abs() + 0.1), lambda x: torch.log1p(x.exp())),
    *(lambda x: x**2, lambda x: x**3, lambda x: x**4, lambda x: (x.abs() + 1) ** 1.7, lambda x: 1 / (x + 9)),
    *(lambda x: (x.abs() + 1) ** -0.5, lambda x: torch.rsqrt(x.abs() + 1), lambda x: 2 - x, lambda x: x.clamp(-1, 1)),
    *(lambda x: torch.where(x > 0.3, x, 2 * x), lambda x: torch.sign(x) * x, lambda x: torch.sin(2e6 * x) / 1e7),
]
KINKED: list[Callable[[Tensor], Tensor]] = [
    *(torch.relu, torch.abs, torch.sign, functional.leaky_relu, lambda x: x + x**0),
    *(lambda x: x.clamp(min=0), lambda x: x.clamp(max=0), lambda x: x.clamp(0, 1), lambda x: x.clamp(-1, 0)),
    *(lambda x: torch.maximum(x, x.flip(1)), lambda x: torch.minimum(x, 2 * x), lambda x: torch.where(x > 0, x, 2 * x)),
    *(lambda x: torch.where(x >= 0, x, 2 * x), lambda x: torch.maximum(x, torch.zeros_like(x))),
    *(lambda x: x.clamp(min=x.flip(1)), lambda x: x.clamp(max=2 * x), lambda x: x.clamp(0, 0)),
]
"""Functions that have no derivative at 0, or none of their own."""
MIXING: list[Callable[[Tensor, Tensor], Tensor]] = [
    *(lambda x, w: x + w[0], lambda x, w: x * w[0] - w[1, 0], lambda x, w: x / (w[0].abs() + 1), lambda x, w: x @ w),
    *(lambda x, w: (w @ x.t()).t(), lambda x, w: x @ w[:2, :2] @ w[1:].t()[:2] if len(w) < 3 else x @ w.t()),
    *(lambda x, w: torch.addmm(w[0], x, w), lambda x, w: functional.linear(x, w, w[:, 0]), lambda x, w: x.flip(1) @ w),
    *(lambda x, w: torch.stack([x[:, 0] * w[0, 0], x[:, 2], x[:, 1]], 1), lambda x, w: x.roll(1, 1) * x),
    *(lambda x, w: torch.cat([x[:, 1:], x[:, :1]], 1), lambda x, w: x * x.sum(1, keepdim=True)),
    *(lambda x, w: x.mean(1, keepdim=True).expand(-1, 3) * w.diagonal(), lambda x, w: x[:, [2, 0, 1]]),
    *(lambda x, w: torch.bmm(x.unsqueeze(1), torch.stack([x, x, 2 * x], 2)).squeeze(1), lambda x, w: x * 0 + w[0]),
    *(lambda x, w: torch.lerp(x, 2 * x, 0.5), lambda x, w: torch.addcmul(x, x, w[0], value=0.3)),
    *(lambda x, w: (x.unsqueeze(1) * w).sum(2), lambda x, w: torch.einsum("bi,ij->bj", x, w)),
    *(lambda x, w: x @ (w * w[0]).tanh() + w.sum(), lambda x, w: torch.maximum(x, w[0])),
]


def assert_follows(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """A program's value and gradients, by its slow interpreter, are the function's; and so is a solve in C."""
    w = nn.Parameter(samples(3, 3))
    x, other = (2 * samples(13, 3)).requires_grad_(), (samples(5, 3) - 0.3).requires_grad_()
    found = trace.trace(lambda t, z: function(z, w), torch.zeros((), dtype=DOUBLE), x)
    value = program.evaluate(found.program, found.recipe.made(found.roots), torch.zeros((), dtype=DOUBLE), other)
    wanted, on = function(other, w), samples(5, 3)
    assert_same([value], [wanted])
    gradients = [torch.autograd.grad(v, [other, w], on, allow_unused=True) for v in (value, wanted)]
    one, another = ([torch.zeros(1) if g is None else g for g in some] for some in gradients)
    assert_same(one, another)


@pytest.mark.parametrize("function", UNARY)
def test_a_function_of_each_number_is_followed(function: Callable[[Tensor], Tensor]) -> None:
    assert_follows(lambda x, w: function(x))


@pytest.mark.parametrize("function", UNARY)
def test_and_in_c(function: Callable[[Tensor], Tensor], taken: list[str]) -> None:
    z, found = (2 * samples(13, 3)).requires_grad_(), []
    for fast in (True, False):
        with wm.fast_paths(fast):
            final = end(lambda t, z: 0.1 * function(0.5 * z), z)
        found.append([final, *torch.autograd.grad(final.sum(), z)])
    assert_same(found[0], found[1])
    assert taken == ["there", "back"]


@pytest.mark.parametrize("choice", [torch.maximum, lambda a, b: torch.minimum(b, a)])
def test_a_choice_loses_no_number_that_is_none(choice: Callable[[Tensor, Tensor], Tensor], taken: list[str]) -> None:
    def field(t: Tensor, z: Tensor) -> Tensor:
        return 0.1 * choice(z, torch.sqrt(z + 1))

    for _ in range(2):
        end(field, samples(3, 2).abs())
    assert taken == ["there", "there"]
    with pytest.raises(wm.errors.NonFiniteError):
        end(field, samples(3, 2).abs() - 9)


@pytest.mark.parametrize("function", KINKED)
def test_where_there_is_no_derivative_it_is_the_one_that_pytorch_chose(
    function: Callable[[Tensor], Tensor], taken: list[str]
) -> None:
    """Found by the fuzzer: padding with zeros is common, and so is clamp(min=0)."""
    z, on, found = torch.zeros(3, 2, dtype=DOUBLE, requires_grad=True), samples(3, 2), []
    for fast in (True, False):
        with wm.fast_paths(fast):
            found.append([*torch.autograd.grad(end(lambda t, z: function(z), z), z, on)])
    assert_same(found[0], found[1])
    assert taken == ["there", "back"]


class Edged(nn.Module):
    """A network on one side of an edge, whose root has no derivative where it is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.edge, self.inside = nn.Parameter(torch.zeros(2, dtype=DOUBLE)), nn.Linear(2, 2, dtype=DOUBLE)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.where(z > self.edge.sqrt(), self.inside(z), -z)


def test_what_is_only_compared_has_no_gradient_be_its_derivative_what_it_may(taken: list[str]) -> None:
    field, found = Edged(), []
    for fast in (True, False):
        with wm.fast_paths(fast):
            whole = end(field, samples(6, 2)).sum()
        found.append(torch.autograd.grad(whole, [field.edge, field.inside.weight], allow_unused=True))
    assert taken == ["there", "back"]
    assert [edge for edge, _ in found] == [None, None]
    torch.testing.assert_close(found[0][1], found[1][1])


EDGE = torch.full((2,), 0.1, dtype=DOUBLE, requires_grad=True)
"""What the fields below only compare with."""


def beside_the_edge(t: Tensor, z: Tensor) -> Tensor:
    return torch.where(z > EDGE, z, torch.tanh(z))


def slope_behind_the_edge(t: Tensor, z: Tensor) -> Tensor:
    with torch.enable_grad():
        z = z if z.requires_grad else z.detach().requires_grad_()
        (slope,) = torch.autograd.grad(torch.relu(z - EDGE).sum(), z, create_graph=True)
    return slope * z


@pytest.mark.parametrize("field", [beside_the_edge, slope_behind_the_edge])
def test_a_field_that_only_compares_with_a_tensor_can_be_differentiated_twice(field: Any, taken: list[str]) -> None:
    found = []
    for fast in (True, False):
        z = samples(6, 2).requires_grad_()
        with wm.fast_paths(fast):
            whole = end(field, z).square().sum()
        once, by_edge = torch.autograd.grad(whole, [z, EDGE], create_graph=True, allow_unused=True)
        (twice,) = torch.autograd.grad(once.square().sum(), z)
        found.append([once.detach(), twice])
        assert by_edge is None or not by_edge.any()
    assert taken == ["there", "back"]
    torch.testing.assert_close(*found)


@torch.no_grad()
def test_fields_that_differ_in_the_sign_of_a_zero_alone_are_two(taken: list[str]) -> None:
    def above(t: Tensor, z: Tensor) -> Tensor:
        return (1 / (z.abs() * 0.0)).clamp(-1, 1)

    def below(t: Tensor, z: Tensor) -> Tensor:
        return (1 / (z.abs() * -0.0)).clamp(-1, 1)

    for field in (above, below):
        assert torch.equal(end(field, samples(6, 2)), slow(field, samples(6, 2)))
    assert taken == ["there", "there"]


@pytest.mark.parametrize("function", MIXING)
def test_what_mixes_columns_and_weights_is_followed(function: Any) -> None:
    assert_follows(function)


# What is found again


def test_a_field_is_watched_once(traces: list[int], taken: list[str]) -> None:
    field = made(WithTime)
    for _ in range(5):
        end(field, samples(6, 2)).sum().backward()  # type: ignore[no-untyped-call]
    assert len(traces) == 1
    assert taken == ["there", "back"] * 5


def test_a_fresh_lambda_for_each_call_is_watched_once(traces: list[int], taken: list[str]) -> None:
    net = network(3, 5, 2)
    for _ in range(5):
        end(lambda t, z: net(torch.cat([z, t.expand(len(z), 1)], 1)), samples(6, 2))
    assert len(traces) == 1
    assert taken == ["there"] * 5


class Wrapped(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.calls = net, 0

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.net(z)


class WrappedAndCounting(Wrapped):
    def forward(self, t: Tensor, z: Tensor) -> Any:
        self.calls += 1
        return self.net(z)


class Called:
    def __init__(self, net: nn.Module) -> None:
        self.net = net

    def __call__(self, t: Tensor, z: Tensor) -> Any:
        return self.net(z)


def of_a_network(net: nn.Module, t: Tensor, z: Tensor) -> Any:
    return net(z)


@pytest.mark.parametrize("wrap", [Wrapped, WrappedAndCounting, Called, wm.Autonomous, partial(partial, of_a_network)])
def test_a_field_that_is_made_anew_for_each_call_is_watched_once(wrap: Any, traces: list[int]) -> None:
    for n in (1, 2, 3):
        net, z = network(2, 5, 2), samples(6, 2)
        nn.init.constant_(net[0].weight, n)
        assert_same([end(wrap(net), z)], [slow(wrap(net), z)])
    assert len(traces) == 1


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_several_threads_may_keep_what_they_found_at_once() -> None:
    def keep(thread: int) -> None:
        for n in range(1000):
            traced._keep(traced._shared, traced.SHARED, (thread, n), (n, True, None), "it is not row-wise")

    run_together(*(partial(keep, thread) for thread in range(4)))
    assert len(traced._shared) == traced.SHARED


def test_a_field_like_one_that_was_not_finite_is_watched_itself(traces: list[int], taken: list[str]) -> None:
    broken = network(2, 5, 2)
    nn.init.constant_(broken[0].bias, torch.inf)
    nn.init.constant_(broken[0].weight, -torch.inf)
    with pytest.raises(wm.errors.NonFiniteError):
        end(Wrapped(broken), samples(6, 2))
    end(Wrapped(network(2, 5, 2)), samples(6, 2))
    assert (len(traces), taken) == (2, ["there"])


def test_after_two_numbers_of_samples_all_are_known(traces: list[int]) -> None:
    field = made(WithTime)
    for n in range(3, 12):
        assert_same([end(field, samples(n, 2))], [slow(field, samples(n, 2))])
    assert len(traces) == 2


def test_new_numbers_in_the_same_tensors_are_seen(traces: list[int]) -> None:
    field, z = made(WithTime), samples(6, 2)
    ends = [end(field, z)]
    with torch.no_grad():
        for parameter in field.parameters():
            parameter.mul_(1.5)
    ends.append(end(field, z))
    field.load_state_dict({name: 0.5 * value for name, value in field.state_dict().items()})
    ends.append(end(field, z))
    field.network[0].weight = nn.Parameter(torch.zeros_like(field.network[0].weight))  # type: ignore[index, union-attr]
    ends.append(end(field, z))
    assert len(traces) == 1
    assert all(not torch.equal(a, b) for a, b in pairwise(ends))
    assert_same([ends[-1]], [slow(field, z)])


class Scaled(nn.Module):
    scale = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.network, self.factor, self.table = network(2, 5, 2), 1.0, {"shift": [0.0]}
        self.drop, self.plain = nn.Dropout(0.5).eval(), torch.ones(2, dtype=DOUBLE)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        moved = self.factor * self.network(self.drop(z)) * self.plain + self.table["shift"][0]
        return self.helped(moved) if self.training else -moved

    def helped(self, x: Tensor) -> Tensor:
        return GAIN * self.scale * x


GAIN = 1.0


def other_factor(field: Any, patch: pytest.MonkeyPatch) -> None:
    field.factor = 2.0


def other_entry(field: Any, patch: pytest.MonkeyPatch) -> None:
    field.table["shift"][0] = 0.25


def other_setting_of_its_class(field: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scaled, "scale", 3.0)


def other_global(field: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(globals(), "GAIN", 1.5)


def other_mode(field: Any, patch: pytest.MonkeyPatch) -> None:
    field.eval()


def other_forward(field: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scaled, "forward", lambda self, t, z: -2 * z)


def other_method(field: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scaled, "helped", lambda self, x: x - 1)


def other_layer(field: Any, patch: pytest.MonkeyPatch) -> None:
    field.network[1] = nn.Sigmoid()


def other_attribute(field: Any, patch: pytest.MonkeyPatch) -> None:
    field.plain = 2 * torch.ones(2, dtype=DOUBLE)


def hook(field: Any, patch: pytest.MonkeyPatch) -> None:
    field.network[1].register_forward_hook(lambda module, given, out: 2 * out)


def own_forward(field: Any, patch: pytest.MonkeyPatch) -> None:
    field.network[1].forward = torch.sin


CHANGES = [
    *(other_factor, other_entry, other_setting_of_its_class, other_global, other_mode, other_forward, other_method),
    *(other_layer, other_attribute, hook, own_forward),
]


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_between_two_solves_is_seen(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    field, z = Scaled(), samples(6, 2)
    field.drop.p = 0.0
    before = end(field, z)
    assert_same([before], [slow(field, z)])
    change(field, monkeypatch)
    after = end(field, z)
    assert not torch.allclose(before, after)
    assert_same([after], [slow(field, z)])


@pytest.mark.parametrize("name", ["ascii", "gain_of_all"])
def test_what_is_put_among_pythons_own_names_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    field, z = eval(f"lambda t, z: {name}([z, z])"), samples(6, 2)
    for factor in (2.0, 3.0):
        monkeypatch.setattr(builtins, name, lambda parts, factor=factor: factor * parts[0], raising=False)
        assert_same([end(field, z)], [slow(field, z)])


def test_what_a_lambda_closes_over_is_looked_at_each_time(taken: list[str]) -> None:
    z, scale, weight = samples(6, 2), 1.0, samples(2)

    def field(t: Tensor, z: Tensor) -> Tensor:
        return scale * weight * z

    for scale, weight in ((1.0, samples(2)), (2.0, samples(2)), (2.0, 3 * samples(2))):  # noqa: B007
        assert_same([end(field, z)], [slow(field, z)])
    assert taken == ["there"] * 3


def test_parameters_put_there_for_a_while_get_their_gradients() -> None:
    block, x, found = wm.ODEBlock(made(WithTime), EULER), samples(4, 2).requires_grad_(), []
    for fast in (True, False):
        with wm.fast_paths(fast):
            weight = x.sin().mean() * torch.ones(12, 3, dtype=DOUBLE)
            given: Any = functional_call(block, {"field.network.0.weight": weight}, x)
            found.append(list(torch.autograd.grad(given.square().sum(), x)))
    assert_same(found[0], found[1])


def test_a_program_keeps_nothing_that_the_class_of_a_field_closes_over() -> None:
    def solved(kept: Tensor) -> None:
        class Closing(Wrapped):
            def forward(self, t: Tensor, z: Tensor) -> Any:
                return self.net(z) + kept

        end(Closing(network(2, 5, 2)), samples(6, 2))

    kept = torch.ones(2, dtype=DOUBLE)
    solved(kept)
    gone = weakref.ref(kept)
    del kept
    gc.collect()
    assert gone() is None


def test_a_program_keeps_no_field_alive() -> None:
    def solved() -> list[Any]:
        field, net = made(WithTime), network(2, 5, 2)
        end(field, samples(6, 2))
        end(lambda t, z: net(z), samples(6, 2))
        return [weakref.ref(field), weakref.ref(net), weakref.ref(net[0].weight)]

    gone = solved()
    gc.collect()
    assert [it() for it in gone] == [None] * 3
