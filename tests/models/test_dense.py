"""The fused dense walk against the eager walk of the same field, and against nn.Conv1d: values and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from windermere.models import SphereField, initialise
from windermere.models.dense import banded, repeated
from windermere.solvers import METHODS, Adaptive, FixedStep, Gradient, OnGrid, Prepared, solve

DOUBLE = torch.float64
POINTS = pytest.mark.parametrize("points", [1, 2, 3, 10])


def sphere_field(points: int, seed: int = 0) -> SphereField:
    """Kaiming weights and, unlike at the start of training, biases that are not zero."""
    field = initialise(SphereField(points, width=8).to(DOUBLE), seed)
    assert isinstance(field, SphereField)
    generator = torch.Generator().manual_seed(100 + seed)
    with torch.no_grad():
        for name, parameter in field.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=DOUBLE) * 0.3)
    return field


def samples(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(9), dtype=DOUBLE)


class Ensemble:
    """Fields with their parameters stacked: what training prepares."""

    def __init__(self, points: int, members: int) -> None:
        self.fields = [sphere_field(points, seed) for seed in range(members)]
        stacked = [torch.stack(parts) for parts in zip(*(f.parameters() for f in self.fields), strict=True)]
        self.tensors = {
            name: tensor.detach().requires_grad_()
            for (name, _), tensor in zip(self.fields[0].named_parameters(), stacked, strict=True)
        }

    def prepare(self) -> Prepared:
        return self.fields[0].prepare_stacked(self.tensors)


class Eagerly:
    """The same prepared field without its fused walk: the slow reference."""

    def __init__(self, field: Any) -> None:
        self.field = field

    def prepare(self) -> Prepared:
        prepared = self.field.prepare()
        assert prepared.walk is not None
        return Prepared(prepared.rate, prepared.tensors)


class Convolving(nn.Module):
    """The paper's layers as nn.Conv1d runs them: no preparation, no matrices."""

    def __init__(self, field: SphereField) -> None:
        super().__init__()
        self.layers = nn.Sequential(field.lift, nn.ReLU(), field.mix, nn.ReLU(), field.lower)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.layers(z.unsqueeze(1)).squeeze(1)


def solved(
    field: Any, z: Tensor, solver: Any, wanted: Any, times: Any = (0.0, 1.0), gradient: Gradient = "backprop"
) -> list[Tensor]:
    """The end state, and the gradients of an uneven loss in the state and in what is wanted."""
    start = z.clone().requires_grad_()
    final = solve(field, start, solver, times, gradient=gradient).final
    assert isinstance(final, Tensor)
    weights = torch.arange(1.0, 1 + final.numel(), dtype=DOUBLE).cos().view_as(final)
    return [final, *torch.autograd.grad((weights * final.square()).sum(), [start, *wanted])]


def assert_same(found: list[Tensor], expected: list[Tensor], closeness: float = 1e-11) -> None:
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=closeness, atol=closeness)


@POINTS
@pytest.mark.parametrize("lead", [(), (3,)])
def test_a_convolution_is_its_banded_matrix(points: int, lead: tuple[int, ...]) -> None:
    for width in (1, 3, 5):
        weight, bias, x = samples(*lead, 4, 2, width), samples(*lead, 4), samples(*lead, 6, 2, points)
        flat = x.transpose(-2, -1).flatten(-2) @ banded(weight, points) + repeated(bias, points)
        dense = flat.reshape(*flat.shape[:-1], points, 4).transpose(-2, -1)
        each = zip(x, weight, bias, strict=True) if lead else [(x, weight, bias)]
        want = torch.stack([nn.functional.conv1d(z, w, b, padding=width // 2) for z, w, b in each])
        torch.testing.assert_close(dense, want if lead else want[0], rtol=1e-13, atol=1e-13)


@POINTS
def test_the_prepared_rate_is_that_of_the_convolutions(points: int) -> None:
    field, z = sphere_field(points), samples(7, points)
    rate = field.prepare().rate(torch.tensor(0.0), z)
    torch.testing.assert_close(rate, Convolving(field)(torch.tensor(0.0), z), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(rate, field(torch.tensor(0.0), z), rtol=1e-13, atol=1e-13)


@POINTS
@pytest.mark.parametrize("method", METHODS)
def test_the_fused_walk_is_the_eager_walk_and_that_of_the_convolutions(points: int, method: str) -> None:
    field, z, solver = sphere_field(points), samples(5, points), FixedStep(method, step=1 / 4)
    fused = solved(field, z, solver, field.parameters())
    assert_same(fused, solved(Eagerly(field), z, solver, field.parameters()))
    assert_same(fused, solved(Convolving(field), z, solver, field.parameters()))


@POINTS
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("steps", [(3, 3, 3), (2, 5, 3)], ids=["equal", "ragged"])
def test_an_ensembles_fused_walk_is_the_eager_one_and_that_of_each_member_alone(
    points: int, method: str, steps: tuple[int, ...]
) -> None:
    ensemble, z = Ensemble(points, 3), samples(3, 5, points)
    solvers = [FixedStep(method, step=1 / n) for n in steps]
    fused = solved(ensemble, z, solvers, ensemble.tensors.values())
    assert_same(fused, solved(Eagerly(ensemble), z, solvers, ensemble.tensors.values()))
    final = fused[0]
    for s, field in enumerate(ensemble.fields):
        alone = solve(Convolving(field), z[s], solvers[s]).final
        torch.testing.assert_close(final[s], alone, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("times", [(1.0, 0.0), (0.3, 2.0), (0.0, 0.7)])
@pytest.mark.parametrize("method", ["euler", "rk4", "dopri54"])
def test_the_fused_walk_goes_either_way_in_time_and_shortens_its_last_step(
    method: str, times: tuple[float, ...]
) -> None:
    field, z, solver = sphere_field(2), samples(5, 2), FixedStep(method, step=0.3)
    assert_same(
        solved(field, z, solver, field.parameters(), times),
        solved(Convolving(field), z, solver, field.parameters(), times),
    )
    ensemble, solvers = Ensemble(2, 2), [FixedStep(method, step=0.3), FixedStep(method, step=0.11)]
    assert_same(
        solved(ensemble, samples(2, 4, 2), solvers, ensemble.tensors.values(), times),
        solved(Eagerly(ensemble), samples(2, 4, 2), solvers, ensemble.tensors.values(), times),
    )


@pytest.mark.parametrize("members", [None, 1, 3])
def test_a_walk_of_many_blocks_is_the_eager_walk(members: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way back goes block by block; here a block is two steps long, and the last one shorter."""
    monkeypatch.setattr("windermere.models.dense.BLOCK", 2 * 2 * 5 * 2 * 8 * (members or 1))
    solver: Any = FixedStep("heun", step=1 / 7)
    if members is None:
        field: Any = sphere_field(2)
        wanted: Any = list(field.parameters())
        z = samples(5, 2)
    else:
        field, solver, z = Ensemble(2, members), [solver] * members, samples(members, 5, 2)
        wanted = field.tensors.values()
    assert_same(solved(field, z, solver, wanted), solved(Eagerly(field), z, solver, wanted))


def test_an_ensemble_of_one_is_the_model_alone() -> None:
    ensemble, z, solver = Ensemble(2, 1), samples(5, 2), FixedStep("rk4", step=1 / 6)
    together = solved(ensemble, z.unsqueeze(0), [solver], ensemble.tensors.values())
    (field,) = ensemble.fields
    for ours, mine in zip(together, solved(field, z, solver, field.parameters()), strict=True):
        torch.testing.assert_close(ours.squeeze(0), mine.reshape(ours.shape[1:]), rtol=1e-12, atol=1e-12)


def test_the_fused_gradient_is_that_of_finite_differences() -> None:
    field, z = sphere_field(2), samples(3, 2).requires_grad_()
    solver = FixedStep("rk4", step=1 / 3)

    def end(z: Tensor, *parameters: Tensor) -> Any:
        names = [name for name, _ in field.named_parameters()]
        prepared = field.prepare_stacked(dict(zip(names, parameters, strict=True)))
        assert prepared.walk is not None

        class Given:
            def prepare(self) -> Prepared:
                return prepared

        return solve(Given(), z, solver).final  # type: ignore[arg-type]

    parameters = [p.detach().clone().requires_grad_() for p in field.parameters()]
    assert torch.autograd.gradcheck(end, (z, *parameters), eps=1e-7, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("members", [None, 2])
def test_without_gradients_the_walk_gives_the_same_end_and_keeps_nothing(members: int | None) -> None:
    solver: Any = FixedStep("rk4", step=1 / 5)
    field: Any = sphere_field(3)
    z = samples(4, 3)
    if members is not None:
        field, solver, z = Ensemble(3, members), [solver] * members, samples(members, 4, 3)
    plain = solve(field, z, solver).final
    with torch.no_grad():
        quiet = solve(field, z, solver).final
    assert isinstance(quiet, Tensor)
    assert isinstance(plain, Tensor)
    assert plain.requires_grad
    assert not quiet.requires_grad
    torch.testing.assert_close(quiet, plain.detach(), rtol=0, atol=0)


@pytest.mark.parametrize(("batch", "points"), [(4, 2), (1, 2), (4, 1), (1, 1)])
def test_the_walk_leaves_its_input_and_its_weights_as_they_were(batch: int, points: int) -> None:
    field, z = sphere_field(points), samples(batch, points)
    before = [x.clone() for x in (z, *field.parameters())]
    solve(field, z, FixedStep("rk4", step=1 / 5))
    with torch.no_grad():
        solve(field, z, FixedStep("rk4", step=1 / 5))
    for x, kept in zip((z, *field.parameters()), before, strict=True):
        assert torch.equal(x, kept)


@pytest.mark.parametrize("layout", ["expanded", "transposed", "strided"])
def test_the_walk_takes_a_state_however_it_lies_in_memory(layout: str) -> None:
    field, solver = sphere_field(2), FixedStep("heun", step=1 / 4)
    z = {
        "expanded": samples(1, 2).expand(5, 2),
        "transposed": samples(2, 5).T,
        "strided": samples(10, 4)[::2, ::2],
    }[layout]
    torch.testing.assert_close(
        solve(field, z, solver).final, solve(Convolving(field), z, solver).final, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("frozen", ["lift", "mix", "lower", "all"])
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_frozen_layers_have_no_gradient_and_the_others_keep_theirs(frozen: str, gradient: Gradient) -> None:
    field, z, solver = sphere_field(2), samples(4, 2), FixedStep("rk4", step=1 / 40)
    (field if frozen == "all" else getattr(field, frozen)).requires_grad_(False)
    wanted = [p for p in field.parameters() if p.requires_grad]
    found = solved(field, z, solver, wanted, gradient=gradient)
    expected = solved(Convolving(field), z, solver, wanted)
    assert_same(found, expected, 2e-2 if gradient == "adjoint" else 1e-11)


@pytest.mark.parametrize(
    "solver",
    [
        Adaptive("dopri54", tolerance=1e-5),
        Adaptive("bosh32", tolerance=1e-4, control="sample"),
        OnGrid("rk4", (0, 0.2, 1)),
    ],
    ids=str,
)
def test_every_other_solver_takes_the_dense_field_as_well(solver: Any) -> None:
    field, z = sphere_field(3), samples(5, 3)
    assert_same(
        solved(field, z, solver, field.parameters()), solved(Convolving(field), z, solver, field.parameters()), 1e-9
    )


def test_states_at_several_times_and_a_record_come_from_the_eager_walk() -> None:
    field, z, solver = sphere_field(2), samples(5, 2), FixedStep("rk4", step=1 / 4)
    several = solve(field, z, solver, (0.0, 0.5, 1.0), record=True)
    assert several.trajectory is not None
    assert len(several.trajectory.times) == 5
    torch.testing.assert_close(several.final, solve(field, z, solver).final, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("members", [None, 2])
def test_nine_hundred_dimensions_are_convolved_and_agree(members: int | None) -> None:
    field: Any = sphere_field(900)
    solver: Any = FixedStep("midpoint", step=1 / 2)
    z = samples(3, 900)
    assert field.prepare().walk is None
    assert_same(solved(field, z, solver, field.parameters()), solved(Convolving(field), z, solver, field.parameters()))
    if members is None:
        return
    ensemble, z = Ensemble(900, members), samples(members, 3, 900)
    together = solve(ensemble, z, [solver] * members).final  # type: ignore[arg-type]
    assert isinstance(together, Tensor)
    for s, alone in enumerate(ensemble.fields):
        torch.testing.assert_close(together[s], solve(Convolving(alone), z[s], solver).final, rtol=1e-11, atol=1e-11)
