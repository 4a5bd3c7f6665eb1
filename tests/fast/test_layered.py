"""Networks of linear layers, solved in C, against PyTorch's own operations; and what is left to PyTorch."""

from functools import partial
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode

from tests.fast import layers
from tests.fast.layers import DOPRI54, EULER, RK4, SOLVERS, Unknown, assert_as_pytorch, network
from tests.fast.small_stack import is_solved_on_a_small_stack, succeeds
from tests.fast.spheres import DOUBLE, assert_same, samples, solved, sphere_field
from tests.torches import weight_norm
from windermere.errors import FieldError, NonFiniteError
from windermere.fast.cpu import compiled, native
from windermere.nn import Autonomous
from windermere.solvers import Adaptive, FixedStep, solve

ACTIVATIONS = pytest.mark.parametrize("activation", [*layers.ACTIVATIONS, partial(nn.LeakyReLU, 0.3)])


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if compiled.library("double", "rows") is None:
        pytest.skip("no C compiler here")


@ACTIVATIONS
@SOLVERS
def test_a_solve_and_its_gradient_are_pytorchs(activation: Any, solver: Any, taken: list[str]) -> None:
    assert_as_pytorch(network(3, 20, 7, 3, activation=activation), samples(19, 3), solver)
    assert_as_pytorch(network(2, 5, 2, activation=activation, last=True), samples(4, 2), solver, times=(1.5, 0.25))
    assert len(taken) == 4


@ACTIVATIONS
@pytest.mark.parametrize("method", ["dopri54", "fehlberg21"])
def test_so_is_the_adjoint(activation: Any, method: str, taken: list[str]) -> None:
    net = network(3, 20, 7, 3, activation=activation)
    assert_as_pytorch(net, samples(19, 3), Adaptive(method, tolerance=1e-3), gradient="adjoint")
    assert taken == ["adapt", "adapt"]


@pytest.mark.parametrize("batch", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("units", [(1, 1), (9, 1, 9), (2, 64, 64, 2), (40, 3, 33, 40), (5, *[6] * 15, 5)], ids=str)
def test_any_units_and_any_number_of_samples_are_taken(units: tuple[int, ...], batch: int, taken: list[str]) -> None:
    for bias in (True, False):
        assert_as_pytorch(network(*units, bias=bias), samples(batch, units[0]), RK4)
    assert taken == ["there", "back"] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("activation", layers.ACTIVATIONS)
def test_activations_are_right_to_a_few_roundings(activation: Any, dtype: torch.dtype) -> None:
    """By a field whose second rate is an activation of the first coordinate, and its derivative by the way back."""
    net = network(2, 1, 2, activation=activation).to(dtype)
    with torch.no_grad():
        for parameter, values in zip(net.parameters(), ([[1, 0]], [0], [[0], [1]], [0, 0]), strict=True):
            parameter.copy_(torch.tensor(values))
    small = torch.logspace(-9, 0, 500, dtype=dtype)
    x = torch.cat([torch.linspace(-80, 80, 4001, dtype=dtype), small, -small, torch.zeros(1, dtype=dtype)])
    z = torch.stack([x, torch.zeros_like(x)], dim=1).requires_grad_()
    found = torch.as_tensor(solve(Autonomous(net), z, FixedStep("euler", step=1.0)).final)[:, 1]
    slope = torch.autograd.grad(found.sum(), z)[0][:, 0]
    exact = x.double().requires_grad_()
    wanted = torch.where(exact > 0, exact, exact.expm1()) if activation is nn.ELU else activation()(exact)
    wanted_slope = torch.autograd.grad(wanted.sum(), exact)[0]
    rounding = torch.finfo(dtype).eps
    lost = rounding if activation is nn.GELU else 0  # by PyTorch, which subtracts from 1
    assert ((found.double() - wanted).abs() <= 4 * rounding * wanted.abs() + lost).all()
    torch.testing.assert_close(slope.double(), wanted_slope, rtol=9 * rounding, atol=9 * rounding)


def test_members_of_one_sample_each_take_steps_of_their_own() -> None:
    net, solvers = network(2, 5, 2), [FixedStep("euler", step=h) for h in (1 / 2, 1 / 4, 1 / 8)]
    for field, unknown in ((Autonomous(net), Unknown(net)), (sphere := sphere_field(2), Plainly(sphere))):
        found, wanted = (solved(f, samples(3, 2), solvers, list(field.parameters())) for f in (field, unknown))
        assert_same(found, wanted)


class Plainly(nn.Module):
    """A field as it is called."""

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.field(t, z)


@pytest.mark.parametrize("slope", [0, 2, True])
def test_a_slope_may_be_a_whole_number(slope: float, taken: list[str]) -> None:
    assert_as_pytorch(nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(slope)).to(DOUBLE), samples(4, 2), EULER)
    assert taken == ["there", "back"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("activation", [nn.Sigmoid, nn.Softplus, nn.SiLU])
def test_what_vanishes_in_pytorch_does_so_in_c(activation: Any, dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Linear(1, 1), activation()).to(dtype)
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), (1, 0), strict=True):
            parameter.fill_(value)
    z = torch.tensor([[-1e3], [-1e30], [-torch.finfo(dtype).max]], dtype=dtype).requires_grad_()
    end: Any = solve(Autonomous(net), z, FixedStep("euler", step=1.0)).final
    assert torch.equal(end, z)
    assert torch.equal(torch.autograd.grad(end.sum(), z)[0], torch.ones_like(z))


def test_a_relu_that_is_off_lets_no_infinity_back() -> None:
    net = network(1, 1, activation=nn.ReLU, last=True)
    with torch.no_grad():
        net[0].bias.fill_(-1e3)
    end: Any = solve(Autonomous(net), samples(3, 1), EULER).final
    found = torch.autograd.grad(end, list(net.parameters()), torch.full_like(end, torch.inf))
    assert all(torch.equal(g, torch.zeros_like(g)) for g in found)


class Own(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def hooked(where: int | None, kind: str = "register_forward_hook") -> Any:
    net = network(2, 5, 2)
    getattr(net if where is None else net[where], kind)(lambda *given: given[-1] if kind.endswith("d_hook") else None)
    return net


def forwarding() -> Any:
    net = network(2, 5, 2)
    net[1].forward = torch.sin
    return net


def offset(*shape: int) -> Any:
    """With a bias that is the same for all units."""
    net = network(2, 5, 2)
    net[2].bias = nn.Parameter(torch.full(shape, 0.3, dtype=DOUBLE))
    return net


def shared() -> Any:
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, nn.Tanh(), layer).to(DOUBLE)


OTHERS = [
    shared(),
    forwarding(),
    offset(),
    offset(1),
    nn.Sequential(Own(2, 5), nn.Tanh(), nn.Linear(5, 2)).to(DOUBLE),
    nn.Sequential(weight_norm(nn.Linear(2, 5)), nn.Tanh(), nn.Linear(5, 2)).to(DOUBLE),
    nn.Sequential(nn.Tanh(), nn.Linear(2, 2)).to(DOUBLE),
    nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Tanh()).to(DOUBLE),
    nn.Sequential(nn.Linear(2, 5), nn.ReLU(inplace=True), nn.Linear(5, 2)).to(DOUBLE),
    network(2, 5, 2, activation=partial(nn.GELU, "tanh")),
    network(2, 5, 2, activation=partial(nn.ELU, 0.5)),
    network(2, 5, 2, activation=partial(nn.Softplus, beta=2)),
    network(2, 5, 2, activation=partial(nn.LeakyReLU, -0.5)),
    network(2, *[3] * 16, 2),
]


def named(net: nn.Module) -> str:
    return str(net).replace("\n", "")[:60]


@SOLVERS
@pytest.mark.parametrize("net", OTHERS, ids=named)
def test_networks_of_other_forms_are_taken_too(net: nn.Module, solver: Any, taken: list[str]) -> None:
    assert_as_pytorch(net, 0.1 * samples(4, 2), solver)
    assert taken in (["there", "back"], ["adapt", "back"])


@SOLVERS
@pytest.mark.parametrize(
    "net",
    [
        *(hooked(where) for where in (None, 0, 1)),
        hooked(0, "register_forward_pre_hook"),
        nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)).to(DOUBLE),
        network(2, 5, 2, activation=partial(nn.LeakyReLU, cast(float, torch.tensor(0.5)))),
        network(2, native.WIDTH_UP_TO + 1, 2),
        nn.Sequential(),
    ],
    ids=named,
)
def test_whatever_else_a_network_does_is_left_to_pytorch(net: nn.Module, solver: Any, taken: list[str]) -> None:
    if len(list(net.parameters())):
        assert_as_pytorch(net, 0.1 * samples(4, 2), solver)
    else:
        solve(Autonomous(net), 0.1 * samples(4, 2), solver)
    assert taken == []


def test_a_hook_on_all_modules_is_called() -> None:
    called: list[str] = []
    hook = register_module_forward_hook(lambda module, given, out: called.append(type(module).__name__))
    try:
        solve(Autonomous(network(2, 5, 2)), samples(4, 2), EULER)
    finally:
        hook.remove()
    assert called.count("Tanh") == 8


@pytest.mark.parametrize("z", [samples(2), samples(3, 4, 2), samples(0, 2)], ids=lambda z: str(tuple(z.shape)))
def test_states_of_other_shapes_are_left_to_pytorch(z: Tensor, taken: list[str]) -> None:
    assert_as_pytorch(network(2, 5, 2), z, EULER)
    assert taken == []


def test_whoever_counts_operations_sees_them() -> None:
    from torch.utils.flop_counter import FlopCounterMode  # since PyTorch 2.1

    net, z = network(2, 5, 2), samples(4, 2)
    with FlopCounterMode(display=False) as count:
        solve(Autonomous(net), z, EULER)
    assert count.get_total_flops() == 8 * 2 * 4 * (2 * 5 + 5 * 2)


class Doubled(TorchFunctionMode):
    """Linear layers give twice as much."""

    def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        result = function(*given, **(named or {}))
        return 2 * result if function is torch.nn.functional.linear else result


def test_whoever_puts_others_in_their_place_is_heard() -> None:
    net, z = network(2, 5, 2), samples(4, 2)
    with Doubled():
        found, wanted = (torch.as_tensor(solve(field, z, EULER).final) for field in (Autonomous(net), Unknown(net)))
    assert_same([found], [wanted])


def test_a_default_device_does_not_matter(taken: list[str]) -> None:
    net, z = network(2, 5, 2), samples(4, 2)
    with torch.device("meta"):
        end: Any = solve(Autonomous(net), z, EULER).final
        torch.autograd.grad(end.sum(), list(net.parameters()))
    assert taken == ["there", "back"]


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_weights_are_left_to_pytorch(taken: list[str]) -> None:
    net, z = network(2, 5, 2), samples(4, 2)
    wanted = torch.as_tensor(solve(Autonomous(net), z, EULER).final)
    net[0].weight = nn.Parameter(net[0].weight.to_sparse_csr(), requires_grad=False)
    assert_same([torch.as_tensor(solve(Autonomous(net), z, EULER).final)], [wanted])
    assert taken == ["there"]


def test_a_network_that_is_no_field_is_told_as_ever() -> None:
    with pytest.raises(FieldError, match="make it return the same"):
        solve(Autonomous(network(2, 5, 3)), samples(4, 2), EULER)
    with pytest.raises(TypeError):
        solve(Autonomous(network(4, 5, 4)), (samples(3, 2), samples(3, 2)), EULER)


@SOLVERS
@pytest.mark.parametrize("activation", layers.ACTIVATIONS)
def test_what_is_not_a_number_is_noticed_in_every_weight(activation: Any, solver: Any) -> None:
    for place in range(4):
        net = network(2, 3, 2, activation=activation)
        with torch.no_grad():
            list(net.parameters())[place].view(-1)[-1] = torch.nan
        with pytest.raises(NonFiniteError, match="the field is not finite at t"):
            solve(Autonomous(net), samples(3, 2), solver)


def test_a_rate_whose_square_is_no_number_is_told_as_ever() -> None:
    net, told = nn.Linear(2, 2), []
    nn.init.constant_(net.bias, 1e20)
    for field in (Autonomous(net), Unknown(net)):
        with pytest.raises(NonFiniteError) as error:
            solve(field, samples(3, 2).float(), DOPRI54)
        told.append(str(error.value))
    assert told[0] == told[1]


LARGEST = """
from tests.fast import layers
from tests.fast.layers import network
from windermere.fast.cpu import native
from windermere.nn import Autonomous
most = native.WIDTH_UP_TO
field = Autonomous(network(most, *[most] * 15, most))
z = torch.full((1, most), 0.1).double()
native.PRODUCTS_UP_TO = 1 << 40
"""


def test_a_solve_of_the_largest_network_fits_on_a_small_stack() -> None:
    assert is_solved_on_a_small_stack(LARGEST)


IN_SMALL_THREADS = """
import ctypes, torch
from tests.fast import layers
from tests.fast.layers import network
from windermere.fast.cpu import native, native_call
from windermere.nn import Autonomous
from windermere.solvers import FixedStep, solve
c, kind = ctypes.CDLL(None), ctypes.create_string_buffer(256)
c.pthread_attr_init(kind)
c.pthread_attr_setstacksize(kind, ctypes.c_size_t(128 << 10))
if not hasattr(c, "pthread_setattr_default_np") or c.pthread_setattr_default_np(kind):
    raise SystemExit
most, native_call.WORTH_A_THREAD = native.WIDTH_UP_TO, 1
torch.set_num_threads(2)
field = Autonomous(network(most, most, most))
native.PRODUCTS_UP_TO = 1 << 40
solve(field, torch.full((32, most), 0.1).double(), FixedStep("euler", step=1.0)).final.sum().backward()
"""


def test_so_it_does_where_threads_have_little_as_with_musl() -> None:
    assert succeeds(IN_SMALL_THREADS)
