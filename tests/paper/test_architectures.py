"""The paper's three architectures: sizes, weights and the layers they are made of."""

from math import prod, sqrt
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from windermere.errors import UnknownNameError
from windermere.nn import ODEBlock
from windermere.paper.architectures import ImageField, SphereField, architecture, images_of, initialise, spheres_of
from windermere.paper.stacked import StackedField
from windermere.solvers import FixedStep, solve

SOLVER = FixedStep("euler", step=1 / 2)
SHAPES = {
    "sphere2": (2,),
    "sphere3": (3,),
    "sphere10": (10,),
    "sphere900": (900,),
    "mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
}
EVERY = pytest.mark.parametrize("data", SHAPES)


def made(data: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    model = initialise(architecture(data, SOLVER).to(dtype), seed)
    assert isinstance(model, nn.Sequential)
    return model


@pytest.mark.parametrize(
    ("data", "count"), [("sphere2", 3207), ("sphere3", 3209), ("sphere10", 3223), ("mnist", 91179), ("cifar10", 179213)]
)
def test_a_model_has_as_many_parameters_as_the_papers(data: str, count: int) -> None:
    assert sum(p.numel() for p in made(data).parameters()) == count


@EVERY
def test_a_model_maps_its_data_to_its_classes(data: str) -> None:
    shape, classes = SHAPES[data], 2 if data.startswith("sphere") else 10
    logits = made(data)(torch.rand(3, *shape, generator=torch.Generator().manual_seed(0)))
    assert logits.shape == (3, classes)
    assert logits.isfinite().all()


@EVERY
def test_biases_are_zero_and_weights_have_kaimings_spread(data: str) -> None:
    for name, parameter in made(data).named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
            continue
        expected = sqrt(2 / prod(parameter.shape[1:]))
        slack = 5 * expected / sqrt(2 * parameter.numel())
        assert float(parameter.detach().square().mean().sqrt()) == pytest.approx(expected, abs=slack), name


@EVERY
def test_a_seed_means_the_same_weights_in_every_dtype(data: str) -> None:
    for single, double in zip(made(data).parameters(), made(data, dtype=torch.float64).parameters(), strict=True):
        assert torch.equal(single, double.float())


def test_different_seeds_have_different_weights_and_one_seed_always_the_same() -> None:
    first, again, other = (nn.utils.parameters_to_vector(made("sphere2", seed).parameters()) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@EVERY
def test_making_a_model_leaves_the_global_generator_alone(data: str) -> None:
    before = torch.random.get_rng_state()
    made(data)
    assert torch.equal(torch.random.get_rng_state(), before)


def paper_field(field: Any, convolution: Any) -> Any:
    """The layers as PyTorch writes them, with this field's weights."""
    layers: Any = nn.Sequential(
        convolution(field.lift.in_channels, field.lift.out_channels, 1),
        nn.ReLU(),
        convolution(field.mix.in_channels, field.mix.out_channels, 3, padding=1),
        nn.ReLU(),
        convolution(field.lower.in_channels, field.lower.out_channels, 1),
    )
    for layer, own in zip(layers[::2], (field.lift, field.mix, field.lower), strict=True):
        layer.load_state_dict(own.state_dict())
    return layers


def test_a_sphere_field_is_three_one_dimensional_convolutions_with_one_channel() -> None:
    field = initialise(SphereField(3), 0)
    z = torch.rand(4, 3, generator=torch.Generator().manual_seed(1))
    layers = paper_field(field, nn.Conv1d)
    assert [layer.weight.shape for layer in layers[::2]] == [(32, 1, 1), (32, 32, 3), (1, 32, 1)]
    torch.testing.assert_close(field(torch.tensor(0.0), z), layers(z.unsqueeze(1)).squeeze(1))


@pytest.mark.parametrize(("channels", "width"), [(1, 96), (3, 128)])
def test_an_image_field_is_three_two_dimensional_convolutions(channels: int, width: int) -> None:
    field = initialise(ImageField(channels, width), 0)
    z = torch.rand(2, channels, 7, 5, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(field(torch.tensor(0.0), z), paper_field(field, nn.Conv2d)(z))


@pytest.mark.parametrize(
    ("field", "shape"), [(SphereField(2), (2,)), (SphereField(40), (40,)), (ImageField(3, 8), (3, 5, 4))]
)
def test_a_stacked_field_is_each_members_own(field: Any, shape: tuple[int, ...]) -> None:
    members = [dict(initialise(type(field)(*sizes(field)), seed).named_parameters()) for seed in range(3)]
    stacked = {name: torch.stack([own[name].detach() for own in members]) for name in members[0]}
    z = torch.rand(3, 4, *shape, generator=torch.Generator().manual_seed(1))
    together = StackedField(field, stacked)
    fast: Any = spheres_of(together) or images_of(together)
    rate = fast.prepared.rate(torch.tensor(0.0), z)
    torch.testing.assert_close(rate, together(torch.tensor(0.0), z))
    for s, own in enumerate(members):
        field.load_state_dict(own)
        torch.testing.assert_close(rate[s], field(torch.tensor(0.0), z[s]))


def sizes(field: SphereField | ImageField) -> tuple[int, ...]:
    if isinstance(field, SphereField):
        return (field.points,)
    return field.lift.in_channels, field.lift.out_channels


def test_the_block_and_the_gradient_are_those_asked_for() -> None:
    model = architecture("sphere2", SOLVER, gradient="checkpoint")
    assert isinstance(model[0], ODEBlock)
    assert (model[0].solver, model[0].gradient) == (SOLVER, "checkpoint")
    assert isinstance(model[1], nn.Flatten)
    assert isinstance(model[2], nn.Linear)


@pytest.mark.parametrize("name", ["sphere", "sphere0", "sphere02", "spheres2", "Sphere2", "minst", "sphere2x"])
def test_an_unknown_data_set_is_refused(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"no architecture for data set '{name}': "):
        architecture(name, SOLVER)


def test_a_model_trains() -> None:
    """Thirty steps on four points bring the loss down: the pieces fit together."""
    model = made("sphere2", dtype=torch.float64)
    x, y = (
        torch.tensor([[0.1, 0.0], [0.0, 0.3], [0.4, 0.1], [-0.3, 0.0]], dtype=torch.float64),
        torch.tensor([0, 1, 0, 1]),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = list[float]()
    for _ in range(30):
        loss = nn.functional.cross_entropy(model(x), y)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert losses[-1] < losses[0] / 2


def test_a_field_can_be_solved_by_itself() -> None:
    field = initialise(ImageField(1, 4), 0)
    final = solve(field, torch.rand(2, 1, 6, 6), SOLVER).final
    assert isinstance(final, Tensor)
    assert final.shape == (2, 1, 6, 6)
