"""The image kernels, on the CPU (interpreted) and on a GPU, against the eager walk in float64: values and gradients.

Images are tiny and their sides odd and unequal, so that most pixels lie at a border; biases are not zero, so that a
hidden layer that is not padded with zeros shows; and tiles are smaller than a batch, and end inside an image.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses import FakeTensorMode

from tests.paper.fast.kernels import DEVICES, Kernels, few, kernels, needs_triton, quiet
from windermere.errors import UsageError
from windermere.paper.fast.image_fused import Launch, Tile, can_walk_images, image_walk, step_sizes
from windermere.solvers import METHODS, Adaptive, FixedStep, solve
from windermere.solvers.grid import Grid, Steps, make_grid
from windermere.solvers.runge_kutta import combine, stages

NAMES = ["end", "start", "lift", "lift bias", "mix", "mix bias", "lower", "lower bias"]
ACCURACY = 2e-6
"""Of float32, relative to the norm: a few roundings."""
LEVELS_COST = 0.0025
CLOSENESS = 1e-4
"""Over steps that differ a little, since error estimates of high order are rounding for a part."""


def normal(generator: torch.Generator, *shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=generator) * scale


def make_case(
    method: str, steps: int, channels: int, width: int, *, members: int = 0, kept: bool = True, **launch: Any
) -> dict[str, Any]:
    """Two images of 3 x 5 pixels, in tiles of 16: the second tile begins inside an image and is not full."""
    g, lead = torch.Generator().manual_seed(7), (members,) if members else ()
    shapes = [(width, channels, 1, 1), (width, width, 3, 3), (channels, width, 1, 1)]
    scales = [(2 / (s[1] * s[2] * s[3])) ** 0.5 for s in shapes]
    weights = [
        w
        for s, scale in zip(shapes, scales, strict=True)
        for w in (normal(g, *lead, *s, scale=scale), normal(g, *lead, s[0], scale=0.5))
    ]
    solvers = [FixedStep(method, step=1 / (steps + member)) for member in range(members or 1)]
    tile = Tile(pixels=launch.pop("pixels", 16), columns=launch.pop("columns", 128))
    settings: dict[str, Any] = {
        "precision": "ieee",
        "taps": 3,
        "chunks": 2,
        "programs": 1,
        "pointwise": 16,
        **launch,
        "assembly": False,
    }
    settings |= {"hidden": "levels" if kept else "recomputed"}
    return {
        "method": method,
        "grid": make_grid(solvers, (0.0, 1.0)),
        "z": normal(g, *lead, 2, channels, 3, 5),
        "cotangent": normal(g, *lead, 2, channels, 3, 5),
        "weights": weights,
        "launch": Launch(forward=tile, back=tile, gradient=tile, sums=tile, **settings),
    }


ONE_TILE = {"pixels": 32, "chunks": 1, "pointwise": 64}
TILES = {"pixels": 16, "chunks": 2, "pointwise": 16}


def adaptive_case(
    method: str,
    tolerances: list[float],
    channels: int,
    *,
    steepness: float = 1.0,
    times: tuple[float, float] = (0.0, 1.0),
    max_steps: int = 100,
    **settings: Any,
) -> dict[str, Any]:
    """In one tile where nothing else is said, since interpreted kernels take their time."""
    made = make_case("euler", 1, channels, 32, **{**ONE_TILE, **settings})
    made["weights"] = [w * steepness for w in made["weights"]]
    solvers = [Adaptive(method, tolerance=e, max_steps=max_steps) for e in tolerances]
    return {**made, "method": method, "solvers": solvers, "times": times}


EXACT = {
    "three channels, recomputed": make_case("rk4", 1, 3, 32, kept=False),
    "one channel, kept": make_case("euler", 2, 1, 32),
    "one channel, recomputed": make_case("midpoint", 1, 1, 32, kept=False),
    "a width that is padded": make_case("euler", 1, 2, 40, kept=False, columns=32),
    "a width of two blocks, more chunks than tiles": make_case("euler", 1, 1, 96, chunks=3),
    "members with steps of their own": make_case("euler", 1, 4, 32, members=2, kept=False, taps=1),
}
"""In float32 throughout."""
LEVELS = make_case("euler", 1, 3, 32)
ROUNDED = {
    "three channels": make_case("euler", 2, 3, 32, precision="bf16"),
    "three channels, nothing kept": make_case("euler", 2, 3, 32, kept=False, precision="bf16"),
    "one channel": make_case("euler", 1, 1, 32, precision="bf16"),
}
ADAPTIVE = {
    "FSAL": adaptive_case("dopri54", [1e-1], 3),
    "FSAL, with a rejection, in tiles": adaptive_case("bosh32", [1e-4], 1, steepness=0.9, times=(0.0, 0.1), **TILES),
    "not FSAL, with a rejection": adaptive_case("fehlberg21", [1e-2], 1, steepness=2.0, times=(0.0, 0.4)),
    "backwards in time": adaptive_case("fehlberg21", [1e-1], 1, times=(1.0, 0.5)),
    "members with tolerances of their own": adaptive_case("fehlberg21", [1e-1, 1e-3], 1, steepness=0.3, members=2),
}
FAILING = adaptive_case("fehlberg21", [1e-3], 1, max_steps=2)
QUIET = [*EXACT, "FSAL", "members with tolerances of their own", "rounded, one channel"]
"""Each way of walking, solved without gradients too."""
CASES = EXACT | {"levels": LEVELS} | ADAPTIVE | {f"rounded, {name}": case for name, case in ROUNDED.items()}


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def found(device: str, shared_folder: Path) -> Iterator[Kernels]:
    with kernels("interpreted_images", {**CASES, **quiet(CASES), "failing": FAILING}, device, shared_folder) as made:
        yield made


def rounded(x: Tensor) -> Tensor:
    """To bfloat16, with the gradient of doing nothing."""
    return x + (x.bfloat16() - x).detach()


def convolved(weights: list[Tensor], z: Tensor, low: bool) -> Tensor:
    """As nn.Conv2d would go; what the products on tensor cores take is rounded where they are low."""
    w1, b1, w2, b2, w3, b3 = weights
    hidden = F.relu(F.conv2d(z, w1, b1))
    hidden, w2 = (rounded(hidden), rounded(w2)) if low else (hidden, w2)
    return F.conv2d(F.relu(F.conv2d(hidden, w2, b2, padding=1)), w3, b3)


def walked(method: str, low: bool, steps: list[float], z: Tensor, weights: list[Tensor]) -> Tensor:
    tableau = METHODS[method]
    for h in steps:
        rates = stages(tableau, lambda _, x: convolved(weights, x, low), [z] * tableau.stages, z, h)
        z = combine(z, h, tableau.b, rates)
    return z


def expected(case: dict[str, Any]) -> list[Tensor]:
    """One operation after the other, in float64."""
    start, *weights = (x.double().requires_grad_() for x in (case["z"], *case["weights"]))
    steps, how = case["grid"].steps, (case["method"], case["launch"].precision == "bf16")
    if steps.ndim == 1:
        end = walked(*how, steps.tolist(), start, weights)
    else:
        own = [(steps[s].tolist(), start[s], [w[s] for w in weights]) for s in range(len(steps))]
        end = torch.stack([walked(*how, *member) for member in own])
    return [end.detach(), *torch.autograd.grad((end * case["cotangent"]).sum(), [start, *weights])]


def errors(found: list[Tensor], case: dict[str, Any]) -> dict[str, float]:
    """Relative to the norm."""
    return relative(found, expected(case))


def relative(found: list[Tensor], wanted: list[Tensor]) -> dict[str, float]:
    assert [x.shape for x in found[: len(wanted)]] == [x.shape for x in wanted]
    apart = [float((got - want).norm() / want.norm()) for got, want in zip(found, wanted, strict=False)]
    return dict(zip(NAMES, apart, strict=True))


@needs_triton
@pytest.mark.parametrize("name", EXACT)
def test_the_kernels_give_the_eager_walks_end_and_gradients(name: str, found: Any) -> None:
    assert max(errors(found[name], EXACT[name]).values()) <= ACCURACY


@needs_triton
def test_levels_cost_the_last_layers_gradient_alone_its_last_digits(found: Any) -> None:
    apart = errors(found["levels"], LEVELS)
    assert 1e-5 < apart.pop("lower") <= LEVELS_COST
    assert max(apart.values()) <= ACCURACY


@needs_triton
@pytest.mark.parametrize("name", ROUNDED)
def test_in_bfloat16_nothing_is_rounded_but_the_factors_of_the_big_products(name: str, found: Any) -> None:
    """The end knows of two of them, the gradients of a third as well: the cotangent of the second hidden layer."""
    apart = errors(found[f"rounded, {name}"], ROUNDED[name])
    assert apart.pop("end") <= 1e-4
    assert max(apart.values()) <= 0.005


@needs_triton
@pytest.mark.parametrize("name", ADAPTIVE)
def test_adaptive_solves_by_the_kernels_take_the_steps_of_the_plain_ones_and_have_their_gradients(
    name: str, found: Any
) -> None:
    case = ADAPTIVE[name]
    start, *weights = (x.double().requires_grad_() for x in (case["z"], *case["weights"]))

    def field(_: Tensor, z: Tensor) -> Tensor:
        if z.ndim == 4:
            return convolved(weights, z, low=False)
        return torch.stack([convolved([w[s] for w in weights], zs, low=False) for s, zs in enumerate(z)])

    solvers = case["solvers"]
    plain = solve(field, start, solvers if start.ndim == 5 else solvers[0], times=case["times"])
    end = cast(Tensor, plain.final)
    wanted = [end.detach(), *torch.autograd.grad((end * case["cotangent"]).sum(), [start, *weights])]
    counts = np.stack([plain.stats.evaluations, plain.stats.accepted, plain.stats.rejected]).reshape(3, -1)
    assert found[name][-1].tolist() == counts.tolist()
    assert bool(counts[2].sum()) is ("rejection" in name)
    apart = relative(found[name], wanted)
    assert apart.pop("lower") <= LEVELS_COST
    assert max(apart.values()) <= CLOSENESS


@needs_triton
def test_an_adaptive_solve_that_fails_says_why(found: Any) -> None:
    (message,) = found["failing"]
    assert message.startswith("2 steps (0 of them rejected) brought the solve only to t = ")


@needs_triton
@pytest.mark.parametrize("name", few(CASES, QUIET))
def test_without_gradients_the_kernels_end_at_the_same_bits(name: str, found: Any) -> None:
    assert torch.equal(found[name][0], found[f"{name}, quiet"][0])


def test_step_sizes_are_those_of_the_grid() -> None:
    grid = make_grid([FixedStep("euler", step=0.3)], (0.0, 1.0))
    torch.testing.assert_close(step_sizes(grid, 0, torch.zeros(1)), torch.tensor([0.3, 0.3, 0.3, 0.1]))


def test_step_sizes_of_members_and_of_tensors_are_each_members_own() -> None:
    grid = make_grid([FixedStep("euler", step=1 / n) for n in (1, 2)], (0.0, 1.0))
    tensors = Steps(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([1, 2], dtype=torch.int32))
    for steps in (grid, tensors):
        assert step_sizes(steps, 0, torch.zeros(1)).tolist() == [1.0, 0.0]
        assert step_sizes(steps, 1, torch.zeros(1)).tolist() == [0.5, 0.5]


def test_a_walk_without_steps_stays_where_it_is() -> None:
    case = EXACT["one channel, kept"]
    grid = Grid(make_grid([FixedStep("euler", step=1.0)], (0.0, 1.0)).nodes[:1], (0,))
    assert torch.equal(image_walk(METHODS["euler"], grid, case["z"], case["weights"]), case["z"])


def test_only_states_on_a_gpu_are_taken() -> None:
    case = EXACT["one channel, kept"]
    assert not can_walk_images(case["z"], case["weights"])


@needs_triton
@pytest.mark.parametrize(
    ("lead", "members", "taken"), [((), (), True), ((3,), (3,), True), ((3,), (), False), ((3,), (2,), False)]
)
def test_only_states_with_the_weights_members_are_taken(
    lead: tuple[int, ...], members: tuple[int, ...], taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    case = EXACT["one channel, kept"]
    with FakeTensorMode():  # tensors of a GPU that need not be there
        z = torch.zeros(*lead, *case["z"].shape, device="cuda")
        weights = [torch.zeros(*members, *w.shape, device="cuda") for w in case["weights"]]
        assert can_walk_images(z, weights) is taken


@needs_triton
@pytest.mark.parametrize("assembly", [True, False], ids=["PTX", "no PTX"])
@pytest.mark.parametrize("kernel", ["forward", "mix_gradient", "lower_gradient"])
def test_compiled_for_hopper_relu_keeps_what_is_not_a_number(kernel: str, assembly: bool) -> None:
    """As it is: the interpreter's maximum always does."""
    bench: Any = import_module("benchmarks.compile_image_kernel")
    if not (bench.TOOLS / "ptxas").exists():
        pytest.skip("this Triton does not compile for Nvidia's GPUs")
    launch = Launch(hidden="recomputed", assembly=assembly)
    text = bench.compiled(kernel, *bench.arguments("mnist", kernel, launch)).asm["ptx"]
    assert "cvt.rn.relu" in text if assembly else "max.NaN.f32" in text
    assert "max.f32" not in text


@needs_triton
@pytest.mark.parametrize("kernel", ["forward", "backward", "mix_gradient", "lower_gradient", "combine"])
def test_every_kernel_of_images_is_told_how_to_round(kernel: str) -> None:
    """Where it is not, Triton warns: its default is about to change."""
    bench: Any = import_module("benchmarks.compile_image_kernel")
    assert bench.arguments("mnist", kernel, Launch())[1]["enable_fp_fusion"]


def test_too_many_channels_are_an_error() -> None:
    weights = [torch.zeros(32, 5, 1, 1), torch.zeros(32), torch.zeros(32, 32, 3, 3), torch.zeros(32)]
    weights += [torch.zeros(5, 32, 1, 1), torch.zeros(5)]
    with pytest.raises(UsageError, match="up to 4 channels"):
        image_walk(METHODS["euler"], EXACT["one channel, kept"]["grid"], torch.zeros(1, 5, 3, 3), weights)


def test_a_padding_that_splits_a_word_of_bits_is_an_error() -> None:
    with pytest.raises(UsageError, match="multiple of 32"):
        Launch(padding=16)


def test_a_width_is_shared_out_in_powers_of_two() -> None:
    assert Tile().blocks(96) == ((0, 64), (64, 32))
    assert Tile().blocks(128) == ((0, 128),)
    assert Tile(columns=32).blocks(96) == ((0, 32), (32, 32), (64, 32))
