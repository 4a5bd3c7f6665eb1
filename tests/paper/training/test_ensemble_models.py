"""The models that an ensemble holds, and those that it refuses."""

import pytest
import torch
from torch import Tensor, nn

from windermere.errors import UsageError
from windermere.nn import ODEBlock
from windermere.paper.architectures import architecture, initialise
from windermere.paper.training import Ensemble

from .members import SEEDS, Swinging, a_model_of_many_layers, fit_together, float64_spheres, steps
from .small import a_config


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
