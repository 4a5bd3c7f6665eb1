"""Who convolves in three products of TF32, and the trial before."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.backends import cudnn
from torch.func import vmap

from tests.paper.fast import tensor_cores
from tests.paper.fast.image_solves import BOTH, SOLVERS, a_field, furthest, pictures, solved
from windermere.nn.arithmetic import convolving_in
from windermere.paper.architectures import ImageField, initialise, walk_of
from windermere.paper.fast import three_products, three_trial
from windermere.paper.fast.three_trial import errors, gains, is_right, takes_three
from windermere.solvers import Adaptive, FixedStep, Gradient, fast_paths, solve
from windermere.solvers.grid import make_grid

CPU, SMALL = torch.device("cpu"), (3, 8, 5, 4)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As if there were a GPU that gains by them: the products that are taken."""
    taken: list[str] = []

    def noting(name: str) -> Callable[[Tensor, Tensor], Tensor]:
        def work(*given: Tensor) -> Tensor:
            taken.append(name)
            made: Tensor = getattr(tensor_cores, name)(tensor_cores.nearest, *given)
            return made

        return work

    for name in ("product", "weight_product"):
        monkeypatch.setattr(three_products, name, noting(name))
    monkeypatch.setattr(three_trial, "gains", lambda *_: True)
    monkeypatch.setattr(three_trial, "_tried", {})
    return taken


def small_field() -> tuple[ImageField, Tensor]:
    return a_field(dtype=torch.float32), pictures(3).float()


def walked(field: nn.Module, z: Tensor, solver: FixedStep, gradient: Gradient) -> list[Tensor]:
    """The end and gradients, of which nothing waits for the device."""
    start, walk = z.clone().requires_grad_(), walk_of(field, gradient)
    assert walk is not None
    end = walk(solver.tableau, make_grid([solver], (0.0, 1.0)), start)
    return [end.detach(), *torch.autograd.grad(end.square().sum(), [start, *field.parameters()])]


@BOTH
@pytest.mark.parametrize("solver", [*SOLVERS, Adaptive("bosh32", tolerance=1e-3)], ids=str)
def test_a_solve_and_its_gradient_are_float32s_nearly(products: list[str], gradient: Gradient, solver: Any) -> None:
    field, z = small_field()
    exact = solved(a_field(), z.double(), solver)
    with convolving_in("float32"):
        found = solved(field, z, solver, gradient)
        assert {"product", "weight_product"} == set(products)
        with fast_paths(False):
            assert furthest(found, exact) < 3 * furthest(solved(field, z, solver, gradient), exact)


@BOTH
def test_the_way_back_goes_as_the_way_there_did(products: list[str], gradient: Gradient) -> None:
    """Autograd's threads do not know what this one has set."""
    field, z = small_field()
    with convolving_in("float32"):
        end = torch.as_tensor(solve(field, z, SOLVERS[0], gradient=gradient).final)
        products.clear()
        with fast_paths(False):
            end.sum().backward()  # type: ignore[no-untyped-call]
    assert "weight_product" in products


def test_captured_training_takes_them_and_not_where_fast_paths_are_off(products: list[str]) -> None:
    field, z = small_field()
    with convolving_in("float32"), fast_paths(False):
        walked(field, z, FixedStep.of("euler", steps=2), "backprop")
        assert not products
    with convolving_in("float32"):
        walked(field, z, FixedStep.of("euler", steps=2), "backprop")
        assert products


# ---------------------------------------------------------------------------------------------------------
# Who does not


@pytest.mark.parametrize("arithmetic", ["tf32", "bfloat16"])
def test_other_arithmetics_keep_their_bits(products: list[str], arithmetic: str) -> None:
    field, z = a_field(arithmetic=arithmetic, dtype=torch.float32), pictures(3).float()
    with convolving_in(arithmetic):
        solved(field, z, SOLVERS[0])
    assert not products


def test_float64_keeps_its_bits(products: list[str]) -> None:
    with convolving_in("float32"):
        solved(a_field(), pictures(3), SOLVERS[0])
    assert not products


def test_tests_and_trials_without_gradients_keep_their_bits(products: list[str]) -> None:
    field, z = small_field()
    with convolving_in("float32"), torch.no_grad():
        solve(field, z, SOLVERS[0])
    assert not products


def test_who_lets_cudnn_convolve_in_tf32_gets_that(products: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "allow_tf32", True)
    field, z = small_field()
    solved(field, z, SOLVERS[0])
    assert not products


def test_nobody_takes_them_in_a_transform_or_without_fast_paths_or_operations(
    products: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    field, z = small_field()
    w = field.mix.weight
    with convolving_in("float32"):
        assert takes_three("float32", z, w)
        with fast_paths(False):
            assert not takes_three("float32", z, w)
        vmap(lambda one: one if not takes_three("float32", one, w) else one / 0)(z[None])
        assert not takes_three("float32", z, w.double())
        monkeypatch.setattr(three_trial, "HAS_OPERATIONS", False)
        assert not takes_three("float32", z, w)


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
def test_a_cpu_keeps_its_bits(gradient: Gradient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(three_products, "product", None)  # a call would fail
    field = initialise(ImageField(3, 128), 0)
    with convolving_in("float32"):
        solved(field, pictures(2).float(), SOLVERS[0], gradient)


@pytest.mark.parametrize(
    ("chip", "width", "images", "taken"),
    [
        *(((9, 0), 128, 2, True), ((8, 0), 96, 2, True), ((8, 9), 128, 2, False), ((7, 5), 128, 2, False)),
        *(((9, 0), 16, 2, False), ((9, 0), 128, 0, False)),
    ],
)
def test_gpus_for_data_centres_gain_with_wide_fields(
    chip: tuple[int, int], width: int, images: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: chip)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(three_trial, "has_triton", lambda: True)
    with FakeTensorMode():  # tensors of a GPU that need not be there
        z, w = torch.zeros(images, 3, 8, 8, device="cuda"), torch.zeros(width, width, 3, 3, device="cuda")
        assert gains(z, w) is taken
        assert not gains(z.cpu(), w.cpu())


# ---------------------------------------------------------------------------------------------------------
# The trial


def test_a_trial_passes_three_products_and_not_one(products: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(ours < 3 * plain for ours, plain in errors(CPU, SMALL).values())
    monkeypatch.setattr(three_products, "parted", lambda x: (x, torch.zeros_like(x)))
    found = errors(CPU, SMALL)
    assert all(ours > 5 * three_trial.FEW * plain for ours, plain in found.values())


def breaks(*_: Tensor) -> Tensor:
    raise RuntimeError("CUDA error: out of something")


WRONG: dict[str, Callable[..., Tensor]] = {
    "a product": lambda x, w: torch.conv2d(x, w, padding=1) * (1 + 1e-5),
    "not a number": lambda x, w: torch.conv2d(x, w, padding=1) * float("nan"),
    "an error": breaks,
}


@BOTH
@pytest.mark.parametrize("wrong", WRONG)
def test_a_trial_that_fails_leaves_float32_and_says_so_once(
    products: list[str],
    gradient: Gradient,
    wrong: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(three_products, "product", WRONG[wrong])
    field, z = small_field()
    with caplog.at_level(logging.WARNING, "windermere"), convolving_in("float32"):
        for _ in range(2):
            found = solved(field, z, SOLVERS[0], gradient)
        monkeypatch.setattr(three_trial, "gains", lambda *_: False)
        plain = solved(field, z, SOLVERS[0], gradient)
    assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))
    (told,) = caplog.messages
    assert told.startswith("convolutions of 3x8x5x4 are done in float32, not in three products of TF32")


def test_a_wrong_product_to_the_weight_alone_is_found(products: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    right = three_products.weight_product
    monkeypatch.setattr(three_products, "weight_product", lambda x, on_y: right(x, on_y) * (1 + 1e-5))
    assert not is_right(CPU, SMALL)


def test_nothing_is_tried_while_a_graph_is_captured(products: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was tried before, in the warm-up, holds."""
    monkeypatch.setattr(three_trial, "_is_capturing", lambda: True)
    assert not is_right(CPU, SMALL)
    assert not products
    monkeypatch.setattr(three_trial, "_is_capturing", lambda: False)
    assert is_right(CPU, SMALL)
    monkeypatch.setattr(three_trial, "_is_capturing", lambda: True)
    assert is_right(CPU, SMALL)


def test_a_trial_leaves_random_numbers_and_flags_alone(products: list[str]) -> None:
    state, flags = torch.get_rng_state(), (cudnn.allow_tf32, cudnn.benchmark)
    is_right(CPU, SMALL)
    assert torch.equal(torch.get_rng_state(), state)
    assert (cudnn.allow_tf32, cudnn.benchmark) == flags


# ---------------------------------------------------------------------------------------------------------
# On a GPU

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
LARGE = (256, 128, 32, 32)
"""Of CIFAR-10."""


@pytest.fixture
def gpu() -> torch.device:
    """One that gains by three products."""
    device = torch.device("cuda", torch.cuda.current_device())
    if not gains(torch.zeros(1, 3, 8, 8, device=device), torch.zeros(128, 128, 3, 3, device=device)):
        pytest.skip("this GPU does not gain by three products")
    return device


@on_a_gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tuned", [True, False])
@pytest.mark.parametrize("shape", [LARGE, (256, 96, 28, 28), (3, 64, 7, 9)], ids=str)
def test_on_cuda_three_products_pass_their_trial(gpu: torch.device, shape: tuple[int, ...], tuned: bool) -> None:
    with convolving_in("float32", tuned=tuned):
        found = errors(gpu, shape)
    print(shape, tuned, found)
    assert three_trial.are_near(found), found


@on_a_gpu
@pytest.mark.filterwarnings("ignore")
def test_on_cuda_parts_are_those_of_a_cpu(gpu: torch.device) -> None:
    """Compiled, and of what is not finite or subnormal, too."""
    bits = torch.randint(-(2**31), 2**31, (64, 128, 8, 8), generator=torch.Generator().manual_seed(0))
    x = bits.to(torch.int32).view(torch.float32).contiguous(memory_format=three_products.FLAT)
    given = (1, three_products.CHANNELS_AT_ONCE, False)
    found = three_products._fast(three_products.pieces, x.to(gpu))(x.to(gpu), *given)
    for one, other in zip(found, three_products.pieces(x, *given), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=0, atol=0, equal_nan=True)


@on_a_gpu
@pytest.mark.filterwarnings("ignore")
@BOTH
def test_on_cuda_a_captured_walk_is_one_that_is_not_captured(gpu: torch.device, gradient: Gradient) -> None:
    """Nearly: cuDNN may add shares of a gradient in any order."""
    field, solver = initialise(ImageField(3, 128), 0).to(gpu), FixedStep.of("euler", steps=2)
    z = torch.rand(16, 3, 32, 32, device=gpu, generator=torch.Generator(gpu).manual_seed(0))
    work = partial(walked, field, z, solver, gradient)
    with convolving_in("float32"):
        with fast_paths(False):
            plain = work()
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            found = work()
        torch.cuda.synchronize()
        assert is_right(gpu, (16, 128, 32, 32))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = work()
        graph.replay()
        torch.cuda.synchronize()
    assert not torch.equal(found[0], plain[0])
    assert furthest(captured, [tensor.double() for tensor in found]) < 1e-4
    exact = walked(field.double(), z.double(), solver, gradient)
    assert furthest(captured, exact) < three_trial.FEW * furthest(plain, exact)
