"""The 3x3 convolution in three products of TF32: its parts, its errors, its gradients, and what PyTorch makes of it."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.paper.fast import tensor_cores
from tests.paper.fast.tensor_cores import ROUNDINGS, nearest
from windermere.paper.fast import images, three_products, three_trial
from windermere.paper.fast.three_products import FLAT, LARGEST, convolve, correlate, parted
from windermere.paper.fast.three_trial import exactly

BOUND = 2.0**-21 * (1 + 2.0**-9)
"""Of an error of the three products, relative to the sum of absolute products: low low' is 2^-22 at most, and rounding
or cutting the last bit of either low part 2^-23; the rest is what high parts are larger than the numbers."""
ADDED = 2.0**-24
"""Of each rounding of a sum to float32."""
SHAPE = (3, 8, 5, 4)


@pytest.fixture(params=ROUNDINGS)
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Tensor cores that round operands to the nearest, or cut them."""
    for name in ("product", "weight_product"):
        work = partial(getattr(tensor_cores, name), ROUNDINGS[request.param])
        monkeypatch.setattr(three_products, name, work)
    return str(request.param)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Of sizes from 1e-5 to 1e5, either sign."""
    random = torch.Generator().manual_seed(seed)
    sizes = 10 ** (10 * torch.rand(shape, generator=random) - 5)
    return (sizes * torch.randn(shape, generator=random)).requires_grad_()


def case() -> tuple[Tensor, Tensor, Tensor]:
    """x, w and a cotangent of y."""
    return numbers(*SHAPE), numbers(8, 8, 3, 3, seed=1), numbers(*SHAPE, seed=2)


def in_three(x: Tensor, w: Tensor, on_y: Tensor) -> list[Tensor]:
    """y and the cotangents of x and w, by autograd."""
    y = convolve(x, w)
    return [y.detach(), *torch.autograd.grad(y, [x, w], on_y)]


# ---------------------------------------------------------------------------------------------------------
# Parts


def every_exponent() -> Tensor:
    """A million finite numbers, as many of each exponent, the smallest and largest and both zeros among them."""
    bits = torch.randint(-(2**31), 2**31, (1_000_000,), generator=torch.Generator().manual_seed(0))
    x = bits.to(torch.int32).view(torch.float32)
    largest = torch.finfo(torch.float32).max
    edges = torch.tensor([0.0, -0.0, 1.0, -1.0, LARGEST, largest, -largest, 1e-45, 2.0**-126, 1 - 2.0**-24])
    return torch.cat([edges, x[x.isfinite()]])


def test_a_high_part_has_eleven_bits_and_both_make_the_number_again() -> None:
    """Subnormal numbers, too; only the sign of a zero is lost in the sum."""
    x = every_exponent()
    high, low = parted(x)
    assert torch.equal(high, nearest(high))
    assert torch.equal(high + low, x)
    small = (x.abs() <= LARGEST) & (x.abs() >= 2.0**-126)
    assert bool((low.abs() <= 2.0**-11 * x.abs())[small].all())


def test_a_low_part_has_twelve_bits() -> None:
    x = every_exponent()
    low = parted(x[x.abs() <= LARGEST])[1].double()
    bits = torch.frexp(low).mantissa * 2**12
    assert torch.equal(bits, bits.round())


def test_infinity_is_in_one_part_only_and_no_number_stays_none() -> None:
    inf, nan = float("inf"), float("nan")
    loud = torch.tensor([-1, 2**31 - 1], dtype=torch.int32).view(torch.float32)  # whose rounding overflows
    high, low = parted(torch.cat([torch.tensor([inf, -inf, nan]), loud]))
    assert high[:2].tolist() == [1, -1]
    assert low[:2].tolist() == [inf, -inf]
    assert bool((high + low)[2:].isnan().all())


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("place", ["x", "w", "both"])
def test_what_is_not_finite_comes_out_where_and_as_in_float32(cores: str, value: float, place: str) -> None:
    x, w, on_y = (tensor.detach() for tensor in case())
    if place != "w":
        x[1, 2, 3, 1] = on_y[0, 0, 0, 0] = value
    if place != "x":
        w[4, 5, 1, 2] = value
    a, b, c = (v.double() for v in (x, w, on_y))
    found = in_three(x.requires_grad_(), w.requires_grad_(), on_y)
    same_way = partial(torch.conv2d, padding=1)  # which multiplies what it pads, too, or does not
    wanted = [same_way(a, b), same_way(c, three_products.turned(b)), three_products.pulled_back(c, a, b)[1]]
    assert not wanted[0].isfinite().all()
    for one, other in zip(found, wanted, strict=True):
        for kind in (torch.isnan, torch.isposinf, torch.isneginf):
            assert torch.equal(kind(one), kind(other))


# ---------------------------------------------------------------------------------------------------------
# Errors


def errors(found: list[Tensor], given: tuple[Tensor, Tensor, Tensor]) -> list[float]:
    """The largest, relative to the sums of absolute products, of y and of the cotangents of x and w."""
    wanted, sizes = (exactly(*(f(v.detach()) for v in given)) for f in (torch.clone, torch.abs))
    return [float(((a - b).abs() / size).max()) for a, b, size in zip(found, wanted, sizes, strict=True)]


def test_three_products_keep_their_bound_there_and_back_and_one_product_does_not(cores: str) -> None:
    given = case()
    bound = BOUND + 3 * ADDED  # of either share, and of their sum
    assert max(errors(in_three(*given), given)) <= bound
    x, w, on_y = (v.detach() for v in given)
    alone = [three_products.product(x, w), three_products.product(on_y, three_products.turned(w))]
    assert min(errors([*alone, three_products.weight_product(x, on_y)], given)) > 50 * bound


def test_pieces_are_summed_to_the_same(cores: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three channels or two images at a time, whose last piece is smaller."""
    monkeypatch.setattr(three_products, "CHANNELS_AT_ONCE", 3)
    monkeypatch.setattr(three_products, "IMAGES_AT_ONCE", 2)
    given = case()
    assert max(errors(in_three(*given), given)) <= BOUND + 7 * ADDED


def test_sums_that_tensor_cores_cut_are_kept_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are few times those of sums in float32; were all channels summed at once, they would be several times."""
    monkeypatch.setattr(three_products, "product", tensor_cores.shrinking)
    random = torch.Generator().manual_seed(0)
    x, w = torch.randn(1, 128, 6, 6, generator=random).relu(), torch.randn(128, 128, 3, 3, generator=random)
    exact = torch.conv2d(x.double(), w.double(), padding=1)
    plain = float((tensor_cores.one_by_one(x, w) - exact).norm())
    times = []
    for at_once in (three_products.CHANNELS_AT_ONCE, 128):
        monkeypatch.setattr(three_products, "CHANNELS_AT_ONCE", at_once)
        times.append(float((convolve(x, w) - exact).norm()) / plain)
    assert times[0] < three_trial.FEW / 3
    assert times[1] > 3 * times[0]


def test_gradients_of_gradients_are_those_of_float64(cores: str) -> None:
    x, w, on_y = (tensor.detach() / tensor.detach().abs().max() for tensor in case())

    def twice(function: Any, dtype: torch.dtype) -> list[Tensor]:
        a, b, c = (v.to(dtype).requires_grad_() for v in (x, w, on_y))
        once = torch.autograd.grad(function(a, b).square(), [a, b], c, create_graph=True)
        return list(torch.autograd.grad(sum(g.sin().sum() for g in once), [a, b, c]))  # type: ignore[arg-type]

    found, wanted = twice(convolve, torch.float32), twice(partial(torch.conv2d, padding=1), torch.float64)
    assert all(float((a - b).norm() / b.norm()) < 1e-5 for a, b in zip(found, wanted, strict=True))


# ---------------------------------------------------------------------------------------------------------
# One operation to PyTorch


@pytest.mark.filterwarnings("ignore")
def test_both_are_operations_as_pytorch_wants_them() -> None:
    x, w, on_y = case()
    pairs: Any = ((convolve, (x.detach().contiguous(memory_format=FLAT), w)), (correlate, (x, on_y)))
    for operation, given in pairs:
        checks: Any = torch.library.opcheck(operation, given)
        assert set(checks.values()) == {"SUCCESS"}


def weights() -> list[Tensor]:
    sizes = [(8, 3, 1, 1), (8,), (8, 8, 3, 3), (8,), (3, 8, 1, 1), (3,)]
    random = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=random).div(3).requires_grad_() for size in sizes]


def evaluated(function: Any) -> tuple[list[Tensor], set[tuple[int, ...]]]:
    """A field's value, its gradients, and the shapes of what is kept for them."""
    own, kept = weights(), set[tuple[int, ...]]()
    z = numbers(2, 3, 5, 4).detach().clamp(-1, 1).contiguous(memory_format=FLAT).requires_grad_()

    def note(tensor: Tensor) -> Tensor:
        kept.add(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        end = function(torch.float32, z, *own)
    return [end.detach(), *torch.autograd.grad(end.square().sum(), [z, *own])], kept


def close(found: Any, wanted: Any) -> bool:
    return all(float((a - b).norm() / b.norm()) < 2e-6 for a, b in zip(found, wanted, strict=True))


@pytest.mark.filterwarnings("ignore")
def test_compiled_it_is_the_same_and_keeps_no_parts(cores: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside, parting and summing are compiled by themselves, as on a GPU."""
    plain, kept = evaluated(images.evaluate)
    in_eager = partial(torch.compile, dynamic=False, backend="aot_eager")
    inside = {f: in_eager(f) for f in (three_products.pieces, three_products.total)}
    monkeypatch.setattr(three_products, "_fast", lambda function, _: inside[function])
    found, kept_too = evaluated(in_eager(images.evaluate_in_three))
    assert close(found, plain)
    assert kept_too <= kept
    with torch.no_grad():
        z, on_rate = numbers(2, 3, 5, 4).clamp(-1, 1), numbers(2, 3, 5, 4, seed=3)
        back = in_eager(images.pull_back_in_three)(torch.float32, on_rate, z, *weights())
        assert close(back, images.pull_back(torch.float32, on_rate, z, *weights()))


def test_without_a_compiler_it_keeps_no_parts_either(cores: str) -> None:
    (plain, kept), (found, kept_too) = evaluated(images.evaluate), evaluated(images.evaluate_in_three)
    assert close(found, plain)
    assert kept_too <= kept
