"""A member of an ensemble is the same as the same model alone.

Everything in float64, since training is chaotic. Adaptive solvers make it more so, as rounding errors get into their
step sizes: at a tolerance of 1e-6 a single model, trained for 30 iterations, differs by up to 4e-9 from itself if only
the samples within each batch are put in another order, and at 1e-8 or with steps for each sample it soon differs by
1e-4. So tolerances are loose where iterations are many.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.torches import needs_torch
from windermere.nn import Autonomous, ODEBlock
from windermere.paper.architectures import SphereField, architecture, initialise
from windermere.paper.stacked import StackedField
from windermere.paper.training import Ensemble
from windermere.solvers import FixedStep, OnGrid, Solver, counting, solve

from .members import (
    DIFFERING,
    DIFFERING_IDS,
    SEEDS,
    Swinging,
    a_model_of_many_layers,
    assert_close,
    assert_members_equal_models_alone,
    float64_spheres,
    steps,
    tolerance,
)
from .small import a_config, model, trained, trained_alone

# ---------------------------------------------------------------------------------------------------------
# Runs


@pytest.mark.parametrize(
    ("solver", "gradient", "optimizer", "iterations"),
    [
        (steps("euler", 4), "backprop", "adam", 100),
        (steps("euler", 4), "backprop", "sgd", 100),
        (steps("rk4", 2), "backprop", "adam", 100),
        (OnGrid("heun", (0.0, 0.1, 0.4, 1.0)), "backprop", "sgd", 100),
        (tolerance("dopri54", 1e-4), "backprop", "adam", 100),
        (tolerance("fehlberg21", 1e-2), "backprop", "sgd", 100),
        (tolerance("dopri54", 1e-2, control="sample"), "backprop", "adam", 20),
        (steps("rk4", 3), "checkpoint", "adam", 30),
        (tolerance("dopri54", 1e-4), "checkpoint", "sgd", 20),
        (steps("rk4", 3), "adjoint", "adam", 20),
        (tolerance("dopri54", 1e-4), "adjoint", "adam", 10),
    ],
    ids=str,
)
def test_each_member_of_a_run_equals_its_seed_trained_alone(
    tmp_path: Path, solver: Solver, gradient: str, optimizer: str, iterations: int
) -> None:
    config = a_config(
        solver=solver,
        seeds=SEEDS,
        iterations=iterations,
        gradient=gradient,
        optimizer=optimizer,
        lr=1e-3 if optimizer == "adam" else 0.1,
        dtype="float64",
        log_every=1000,
        evaluate_every=1000,
    )
    trained(tmp_path, config)
    stacked = model(tmp_path).tensors
    for s, seed in enumerate(SEEDS):
        for name, expected in trained_alone(config, seed).items():
            assert_close(stacked[name][s], expected)


def test_an_ensemble_of_one_equals_the_member_of_a_larger_one(tmp_path: Path) -> None:
    config = a_config(seeds=SEEDS, iterations=100, dtype="float64")
    trained(tmp_path / "all", config)
    for s, seed in enumerate(SEEDS):
        trained(tmp_path / str(seed), a_config(seeds=(seed,), iterations=100, dtype="float64"))
        for name, alone in model(tmp_path / str(seed)).tensors.items():
            assert_close(model(tmp_path / "all").tensors[name][s], alone[0])


# ---------------------------------------------------------------------------------------------------------
# Members that differ in precision, and models that are not ours


@pytest.mark.parametrize("solvers", DIFFERING, ids=DIFFERING_IDS)
@pytest.mark.parametrize(("gradient", "iterations"), [("backprop", 100), ("checkpoint", 10), ("adjoint", 5)])
def test_members_with_precisions_of_their_own_equal_each_alone(
    solvers: list[Solver], gradient: Any, iterations: int
) -> None:
    def make(seed: int) -> nn.Module:
        return initialise(architecture("sphere2", solvers[0], gradient=gradient), seed).double()

    config = a_config(seeds=SEEDS, iterations=10 if solvers is DIFFERING[-1] else iterations)
    assert_members_equal_models_alone(make, config, solvers, float64_spheres())


def test_members_with_tolerances_far_apart_equal_each_alone() -> None:
    def make(seed: int) -> nn.Module:
        return initialise(architecture("sphere2", solvers[0]), seed).double()

    solvers = [tolerance("dopri54", value) for value in (1e-1, 1e-6, 1e-3)]
    config = a_config(seeds=SEEDS, iterations=5)
    assert_members_equal_models_alone(make, config, solvers, float64_spheres())


@pytest.mark.parametrize("solvers", [[steps("rk4", 3)] * 3, *DIFFERING[:4]], ids=["the same", *DIFFERING_IDS[:4]])
def test_any_sequential_with_several_blocks_and_a_field_of_the_users_equals_each_alone(solvers: list[Solver]) -> None:
    config = a_config(seeds=SEEDS, iterations=20, lr=1e-3)
    assert_members_equal_models_alone(a_model_of_many_layers, config, solvers, float64_spheres())


@needs_torch(5, "that checkpoints what is mapped over members")
@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_a_field_of_the_users_has_every_gradient_in_an_ensemble(gradient: Any) -> None:
    def make(seed: int) -> nn.Module:
        made = a_model_of_many_layers(seed)
        for module in made.modules():
            if isinstance(module, ODEBlock):
                module.gradient = gradient
        return made

    config = a_config(seeds=SEEDS, iterations=5)
    for solvers in DIFFERING[1:3]:
        assert_members_equal_models_alone(make, config, solvers, float64_spheres())


def test_a_field_that_steps_by_sample_gets_a_time_for_each_sample() -> None:
    class Timed(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.full((2,), factor, dtype=torch.float64))

        def forward(self, t: Tensor, z: Tensor) -> Tensor:
            return self.factor * torch.sin(5 * t) * z

    solver = tolerance("dopri54", 1e-5, control="sample")
    models = [nn.Sequential(ODEBlock(Timed(factor), solver)) for factor in (1.0, 4.0)]
    x = torch.linspace(0.1, 3, 10, dtype=torch.float64).reshape(5, 2)
    together = Ensemble(models)(x.expand(2, 5, 2), [solver] * 2)
    for s, alone in enumerate(models):
        assert_close(together[s].detach(), alone(x).detach())


@pytest.mark.parametrize("interpolate", [False, True])
def test_a_block_with_several_times_gives_each_member_all_its_states(interpolate: bool) -> None:
    def make(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        block = ODEBlock(Swinging(2), steps("rk4", 8), times=(0.0, 0.3, 1.0), interpolate=interpolate)
        return nn.Sequential(block).double()

    models = [make(seed) for seed in SEEDS]
    x = torch.randn(3, 6, 2, dtype=torch.float64)
    together = Ensemble(models)(x, [steps("rk4", 8)] * 3)
    assert together.shape == (3, 3, 6, 2)
    for s, alone in enumerate(models):
        assert_close(together[s].detach(), alone(x[s]).detach())


@pytest.mark.parametrize("flatten", [nn.Flatten(), nn.Flatten(-3), nn.Flatten(1, 2), nn.Flatten(-2, -1), nn.Flatten(0)])
def test_flattening_leaves_the_member_axis_alone(flatten: nn.Flatten) -> None:
    models = [nn.Sequential(nn.Conv1d(2, 3, 1), nn.Unflatten(2, (5, 2)), flatten) for _ in range(2)]
    x = torch.randn(2, 4, 2, 10)
    together = Ensemble(models)(x, [steps("euler", 1)] * 2)
    for s, alone in enumerate(models):
        torch.testing.assert_close(together[s], alone(x[s]))


@pytest.mark.parametrize(("data", "shape"), [("mnist", (1, 28, 28)), ("sphere30", (30,))])
@pytest.mark.parametrize(
    "solvers",
    [[steps("euler", 1), steps("euler", 2)], [tolerance("fehlberg21", 1.0), tolerance("fehlberg21", 0.1)]],
    ids=["fixed", "adaptive"],
)
def test_the_large_models_equal_each_alone(data: str, shape: tuple[int, ...], solvers: list[Solver]) -> None:
    def make(seed: int) -> nn.Module:
        return initialise(architecture(data, solvers[0]), seed).double()

    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(4, *shape, generator=generator, dtype=torch.float64) / 4
    labels = torch.tensor([0, 1, 1, 0])
    config = a_config(seeds=(3, 0), iterations=2, batch_size=2, lr=1e-4)
    assert_members_equal_models_alone(make, config, solvers, (inputs, labels))


def test_each_member_is_charged_its_own_evaluations() -> None:
    models = [initialise(architecture("sphere2", steps("rk4", 1)), seed) for seed in SEEDS]
    with counting() as count, torch.no_grad():
        Ensemble(models)(torch.rand(3, 10, 2), [steps("rk4", n) for n in (1, 5, 2)])
    assert count.forward.tolist() == [4, 20, 8]  # type: ignore[union-attr]


def test_an_autonomous_network_can_be_a_members_field() -> None:
    models = [nn.Sequential(ODEBlock(Autonomous(nn.Linear(2, 2)), steps("rk4", 2))).double() for _ in range(2)]
    x = torch.rand(2, 4, 2, dtype=torch.float64)
    together = Ensemble(models)(x, [steps("rk4", 2), steps("rk4", 3)])
    assert_close(together[0].detach(), models[0](x[0]).detach())


class Still(SphereField):
    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return 0 * super().forward(t, z)


def test_an_ensemble_of_a_subclass_is_solved_by_its_own_forward() -> None:
    field, z = initialise(Still(2), 0), torch.randn(2, 4, 2)
    stacked = StackedField(field, {name: torch.stack([p, p]).detach() for name, p in field.named_parameters()})
    solver = FixedStep("rk4", step=1 / 4)
    assert torch.equal(torch.as_tensor(solve(stacked, z, [solver, solver]).final), z)
