"""A member of an ensemble is the same as the same model alone.

Everything in float64, since training is chaotic. Adaptive solvers make it more so, as rounding errors get into their
step sizes: at a tolerance of 1e-6 a single model, trained for 30 iterations, differs by up to 4e-9 from itself if only
the samples within each batch are put in another order, and at 1e-8 or with steps for each sample it soon differs by
1e-4. So tolerances are loose where iterations are many.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.torches import needs_torch
from windermere.errors import UsageError
from windermere.nn import Autonomous, ODEBlock, using
from windermere.paper.architectures import SphereField, architecture, initialise
from windermere.paper.stacked import StackedField
from windermere.paper.training import Ensemble, RunConfig
from windermere.paper.training.batches import Batches
from windermere.paper.training.checkpoint import make_optimizer, pack, update
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver, counting, solve

from .small import a_config, fit_alone, model, optimizer_for, some_spheres, trained, trained_alone

SEEDS = (3, 0, 8)


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def steps(method: str, n: int) -> Solver:
    return FixedStep.of(method, steps=n)


def tolerance(method: str, value: float, **options: Any) -> Solver:
    return Adaptive(method, tolerance=value, **options)


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


def fit_together(ensemble: Ensemble, config: RunConfig, solvers: Sequence[Solver], data: tuple[Tensor, Tensor]) -> None:
    """The training loop by hand, with a solver for each member."""
    inputs, labels = data
    optimizer = make_optimizer(config.optimizer, ensemble.parameters(), config.lr)
    batches = Batches(len(labels), config.batch_size, config.seeds, "cpu")
    for iteration in range(config.iterations):
        chosen = batches.indices(iteration)
        optimizer.zero_grad()
        logits = ensemble(inputs[chosen], solvers)
        loss = F.cross_entropy(logits.transpose(1, 2), labels[chosen], reduction="none").mean(dim=1).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def assert_members_equal_models_alone(
    make: Callable[[int], nn.Module], config: RunConfig, solvers: Sequence[Solver], data: tuple[Tensor, Tensor]
) -> None:
    ensemble = Ensemble([make(seed) for seed in config.seeds])
    fit_together(ensemble, config, solvers, data)
    for s, (seed, solver) in enumerate(zip(config.seeds, solvers, strict=True)):
        alone = make(seed)
        with using(alone, solver):
            fit_alone(alone, config, *data, seed)
        for name, expected in alone.named_parameters():
            assert_close(ensemble.tensors[name][s].detach(), expected.detach())


def float64_spheres() -> tuple[Tensor, Tensor]:
    (inputs, labels), _ = some_spheres()
    return inputs.double(), labels


DIFFERING: list[list[Solver]] = [
    [steps("euler", n) for n in (2, 9, 5)],
    [FixedStep("rk4", step=h) for h in (0.4, 1.0, 0.3)],
    [tolerance("dopri54", value) for value in (1e-2, 1e-4, 1e-3)],
    [tolerance("fehlberg21", value) for value in (1e-1, 1e-3, 1e-2)],
    [tolerance("dopri54", value, control="sample") for value in (1e-1, 1e-3, 1e-2)],
]


DIFFERING_IDS = ["euler", "rk4", "dopri54", "fehlberg21", "by sample"]


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


class Swinging(nn.Module):
    """A field as a user writes it: smooth, and it depends on t, which is a number to it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width + 1, 8), nn.Linear(8, width)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        if t.ndim > 0:
            raise AssertionError(f"t is of shape {tuple(t.shape)}")
        time = t.expand(*z.shape[:-1], 1)
        hidden = torch.tanh(self.into(torch.cat([z, time], dim=-1)))
        return torch.as_tensor(self.out(hidden) * torch.cos(3 * t))


def a_model_of_many_layers(seed: int) -> nn.Module:
    """Upstream and downstream layers, two blocks, an activation that is used twice, a Sequential inside."""
    generator = torch.Generator().manual_seed(seed)
    tanh = nn.Tanh()
    blocks = [ODEBlock(Swinging(4), steps("euler", 1), times=times) for times in ((0.0, 1.0), (0.5, -0.25))]
    inner = nn.Sequential(OrderedDict(block=blocks[0], norm=nn.LayerNorm(4)))
    made = nn.Sequential(
        nn.Linear(2, 4), tanh, inner, nn.Linear(4, 4, bias=False), tanh, blocks[1], nn.Flatten(), nn.Linear(4, 2)
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
    return made


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


# ---------------------------------------------------------------------------------------------------------
# What an ensemble holds, and what it refuses


def test_a_member_taken_out_is_the_model_that_was_put_in() -> None:
    models = [a_model_of_many_layers(seed) for seed in SEEDS]
    states = [{name: tensor.clone() for name, tensor in made.state_dict().items()} for made in models]
    ensemble = Ensemble(models)
    for s in (2, 0, 1):
        for name, tensor in ensemble.member(s).state_dict().items():
            assert torch.equal(tensor, states[s][name])


def test_members_taken_out_are_independent_of_each_other_and_of_the_ensemble() -> None:
    ensemble = Ensemble([a_model_of_many_layers(seed) for seed in SEEDS])
    first, second = ensemble.member(0), ensemble.member(1)
    with torch.no_grad():
        first.get_parameter("0.weight").zero_()
    assert torch.equal(second.get_parameter("0.weight"), ensemble.tensors["0.weight"][1])
    assert ensemble.member(0).get_parameter("0.weight").abs().min() > 0


def test_an_ensemble_shares_no_memory_with_the_models_it_was_made_of() -> None:
    made = a_model_of_many_layers(0)
    ensemble = Ensemble([made])
    with torch.no_grad():
        ensemble.parameters()[0].zero_()
    assert made.get_parameter("0.weight").abs().min() > 0


def test_a_frozen_parameter_stays_frozen_in_an_ensemble() -> None:
    models = [a_model_of_many_layers(seed) for seed in (0, 1)]
    for made in models:
        made.get_parameter("0.weight").requires_grad_(False)
    ensemble = Ensemble(models)
    before = ensemble.tensors["0.weight"].clone()
    fit_together(ensemble, a_config(seeds=(0, 1), iterations=3), [steps("rk4", 2)] * 2, float64_spheres())
    assert torch.equal(ensemble.tensors["0.weight"], before)
    assert not torch.equal(ensemble.tensors["7.weight"][0], models[0].get_parameter("7.weight"))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = ODEBlock(Swinging(2), steps("euler", 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(x + self.block(x))


class Doubled(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(2 * self[0](x))


LINEAR = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("models", "sentence"),
    [
        ([], "made of nn.Sequential models"),
        ([nn.Linear(2, 2)], "made of nn.Sequential models"),
        ([Residual()], "made of nn.Sequential models"),
        ([Doubled(nn.Linear(2, 2))], "made of nn.Sequential models"),
        ([nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))], "buffers"),
        ([nn.Sequential(Residual(), nn.Linear(2, 2))], "an ODEBlock only as a layer"),
        ([nn.Sequential(LINEAR, nn.Tanh(), LINEAR)], "share parameters"),
        ([nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 3))], "share one architecture"),
        ([nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Tanh(), nn.Linear(2, 2))], "share one architecture"),
    ],
    ids=[
        "none",
        "no sequential",
        "a block inside",
        "own forward",
        "buffers",
        "hidden block",
        "shared",
        "shape",
        "name",
    ],
)
def test_what_cannot_be_walked_layer_by_layer_is_refused(models: list[nn.Module], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Ensemble(models)


def test_an_ensemble_needs_a_solver_for_each_member() -> None:
    models = [initialise(architecture("sphere2", steps("euler", 1)), seed) for seed in SEEDS]
    with pytest.raises(UsageError, match="2 solvers were given, one for each member"):
        Ensemble(models)(torch.rand(3, 4, 2), [steps("euler", 1)] * 2)


def test_an_autonomous_network_can_be_a_members_field() -> None:
    models = [nn.Sequential(ODEBlock(Autonomous(nn.Linear(2, 2)), steps("rk4", 2))).double() for _ in range(2)]
    x = torch.rand(2, 4, 2, dtype=torch.float64)
    together = Ensemble(models)(x, [steps("rk4", 2), steps("rk4", 3)])
    assert_close(together[0].detach(), models[0](x[0]).detach())


def test_the_fused_optimizers_are_pytorchs_own() -> None:
    """What training uses against what a plain loop would, on parameters that are not stacked."""
    for name in ("adam", "sgd"):
        config = a_config(optimizer=name, lr=0.1)
        one, other = (torch.linspace(-1, 1, 7, dtype=torch.float64).requires_grad_() for _ in range(2))
        fused, plain = make_optimizer(name, [one], 0.1), optimizer_for(config, [other])
        for _ in range(5):
            for tensor, optimizer in ((one, fused), (other, plain)):
                optimizer.zero_grad()
                (tensor**4).sum().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        assert_close(one.detach(), other.detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_an_update_is_the_optimizers_own_step_to_the_bit(name: str, dtype: torch.dtype) -> None:
    """With the same state to save, and with a parameter that at first has no gradient."""
    states = []
    for step in (update, lambda optimizer: optimizer.step()):
        ensemble = Ensemble([initialise(architecture("sphere2", steps("euler", 1)), 0).to(dtype)])
        parameters = ensemble.parameters()
        optimizer = make_optimizer(name, parameters, 0.1)
        for iteration in range(4):
            for k, parameter in enumerate(parameters):
                parameter.grad = (parameter.detach() - k).sin() if k or iteration else None
            step(optimizer)
        states.append(pack(ensemble, optimizer))
    one, other = states
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


class Still(SphereField):
    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return 0 * super().forward(t, z)


def test_an_ensemble_of_a_subclass_is_solved_by_its_own_forward() -> None:
    field, z = initialise(Still(2), 0), torch.randn(2, 4, 2)
    stacked = StackedField(field, {name: torch.stack([p, p]).detach() for name, p in field.named_parameters()})
    solver = FixedStep("rk4", step=1 / 4)
    assert torch.equal(torch.as_tensor(solve(stacked, z, [solver, solver]).final), z)
