"""Trainings whose batches are each solved otherwise: by drawn steps, and by what the study of recipes tries."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import windermere as wm
from windermere.errors import StartedOtherwiseError
from windermere.paper.architectures import architecture, initialise
from windermere.paper.training import RunConfig, make_ensemble
from windermere.paper.training.batches import Batches
from windermere.paper.training.treatment import Treatment, bound_field, penalised_features

from .small import (
    a_config,
    assert_same_bits,
    assert_same_run,
    checkpoint,
    model,
    optimizer_for,
    rows,
    some_spheres,
    trained,
)

OWN = wm.FixedStep.of("midpoint", steps=8)
DRAWN = wm.RandomSteps(mean=2, finish=0.4)
TREATMENTS = [
    Treatment(methods=(("midpoint", 2), ("rk4", 1))),
    Treatment(stages=((0.5, 2), (1.0, 8))),
    Treatment(end=0.5),
    Treatment(kinetic=0.1, jacobian=0.1),
    Treatment(spectral=1.5),
]


def config(**changes: Any) -> RunConfig:
    return a_config(**{"solver": OWN, "seeds": (4, 1), "iterations": 12, "checkpoint_every": 4, **changes})


@pytest.mark.parametrize("changes", [{"random_steps": DRAWN}, *({"treatment": each} for each in TREATMENTS)], ids=str)
def test_a_run_stopped_and_resumed_equals_one_that_was_not(tmp_path: Path, changes: dict[str, Any]) -> None:
    own = config(**changes, log_every=1)
    trained(tmp_path / "whole", own)
    trained(tmp_path / "pieces", own, stop_at=7)
    trained(tmp_path / "pieces", own, resume=True)
    assert_same_run(tmp_path / "pieces", tmp_path / "whole")


@pytest.mark.parametrize("changes", [{"random_steps": DRAWN}, {"treatment": TREATMENTS[1]}], ids=str)
def test_a_run_that_ends_with_other_steps_cannot_become_longer(tmp_path: Path, changes: dict[str, Any]) -> None:
    trained(tmp_path, config(**changes))
    with pytest.raises(StartedOtherwiseError, match="cannot become longer"):
        trained(tmp_path, config(**changes, iterations=24), resume=True)


def test_a_run_whose_steps_are_all_drawn_alike_may_become_longer(tmp_path: Path) -> None:
    endless = {"random_steps": wm.RandomSteps(mean=2, finish=0)}
    trained(tmp_path / "longer", config(**endless))
    trained(tmp_path / "longer", config(**endless, iterations=24), resume=True)
    trained(tmp_path / "whole", config(**endless, iterations=24))
    assert_same_bits(model(tmp_path / "longer").tensors, model(tmp_path / "whole").tensors)


def test_training_with_random_steps_is_a_plain_loop_that_uses_them(tmp_path: Path) -> None:
    own = config(random_steps=DRAWN, dtype="float64")
    trained(tmp_path, own)
    (inputs, labels), _ = some_spheres()
    for s, seed in enumerate(own.seeds):
        alone = initialise(architecture("sphere2", OWN), seed).double()
        optimizer, batches = optimizer_for(own, list(alone.parameters())), Batches(len(labels), 16, [seed], "cpu")
        for iteration in range(12):
            chosen = batches.indices(iteration)[0]
            optimizer.zero_grad()
            with wm.using(alone, DRAWN.at(iteration, 12, seed)):
                F.cross_entropy(alone(inputs[chosen].double()), labels[chosen]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        for name, parameter in alone.named_parameters():
            assert torch.allclose(model(tmp_path).tensors[name][s], parameter, rtol=1e-9, atol=1e-12)


def test_evaluations_are_those_of_the_steps_that_were_drawn(tmp_path: Path) -> None:
    trained(tmp_path, config(random_steps=DRAWN))
    for row in (row for row in rows(tmp_path) if row["iteration"] == 12):
        drawn = [DRAWN.at(iteration, 12, row["seed"])(OWN) for iteration in range(12)]
        assert row["evaluations_forward"] == sum(2 * round(1 / solver.step) for solver in drawn)


def test_a_model_that_was_trained_so_has_its_own_solver(tmp_path: Path) -> None:
    trained(tmp_path, config(random_steps=DRAWN))
    assert wm.load_run(tmp_path, 4)[0].solver == OWN  # type: ignore[index]


def test_a_capture_that_is_asked_for_is_none(tmp_path: Path) -> None:
    own = config(random_steps=DRAWN)
    trained(tmp_path / "plain", own)
    trained(tmp_path / "asked", own, capture=True)
    assert_same_run(tmp_path / "plain", tmp_path / "asked")


def test_drawn_methods_are_those_of_the_list_and_the_same_for_all_seeds() -> None:
    seen = {TREATMENTS[0].solver(OWN, iteration, 100) for iteration in range(100)}
    assert seen == {wm.FixedStep.of("midpoint", steps=2), wm.FixedStep.of("rk4", steps=1)}


def test_random_ends_leave_the_models_times_as_they_were_and_change_what_is_learned(tmp_path: Path) -> None:
    ensemble = make_ensemble(config())
    block: Any = ensemble.template[0]
    with Treatment(end=0.5).ending(ensemble, OWN, 3) as solver:
        last = block.times[1]
        assert 0.5 <= last <= 1.5 != last
        assert isinstance(solver, wm.FixedStep)
        assert len(solver.nodes(0.0, last)) - 1 == 8
    assert block.times == (0.0, 1.0)
    for name, changes in {"plain": {}, "ended": {"treatment": Treatment(end=0.5)}}.items():
        trained(tmp_path / name, config(**changes))
    weight = "0.field.mix.weight"
    assert not torch.equal(*(model(tmp_path / name).tensors[weight] for name in ("plain", "ended")))


@pytest.mark.parametrize(("data", "shape"), [("sphere2", (2,)), ("mnist-patches", (4, 7, 7))])
def test_features_with_penalties_are_those_without(data: str, shape: tuple[int, ...]) -> None:
    ensemble = make_ensemble(config(data=data, dtype="float64"))
    x = torch.randn(2, 16, *shape, dtype=torch.float64)
    states, _, spent = penalised_features(ensemble, x, OWN, Treatment(kinetic=1.0, jacobian=1.0), 0)
    assert torch.allclose(states, ensemble.features(x, (OWN, OWN)), rtol=1e-10)
    assert spent == 8 * (2 + 1)


def test_penalties_are_the_mean_squares_of_field_and_jacobian_along_the_solve() -> None:
    ensemble, x = make_ensemble(config(dtype="float64", seeds=(4,))), torch.randn(1, 16, 2, dtype=torch.float64)
    (field, states), h = ensemble.first_solve(x), 1 / 8
    nodes = wm.solve(field, states, (OWN,), times=[n * h for n in range(9)]).states[:8]
    rates = torch.stack([field(z.new_zeros(()), z) for z in nodes])
    _, kinetic, _ = penalised_features(ensemble, x, OWN, Treatment(kinetic=1.0), 0)
    assert torch.allclose(kinetic, h * rates.square().sum(-1).mean(-1).sum())
    noisy = [penalised_features(ensemble, x, OWN, Treatment(jacobian=1.0), i)[1].detach() for i in range(200)]
    exact = h * torch.stack([_frobenius(field, z[0]) for z in nodes]).sum()
    assert torch.allclose(torch.stack(noisy).mean(), exact, rtol=0.1)


def _frobenius(field: Any, states: torch.Tensor) -> torch.Tensor:
    """The mean over states of the squared Frobenius norm of the Jacobian."""
    norms = [torch.func.jacrev(lambda z: field(z.new_zeros(()), z[None, None])[0, 0])(z).square().sum() for z in states]
    return torch.stack(norms).mean()


def test_penalised_training_counts_its_evaluations(tmp_path: Path) -> None:
    trained(tmp_path, config(treatment=Treatment(kinetic=0.1)))
    assert checkpoint(tmp_path).meta["evaluations"]["forward"] == [12 * 16] * 2


@pytest.mark.parametrize("data", ["sphere2", "mnist-patches"])
def test_each_layer_of_each_members_field_is_bounded_by_itself_and_nothing_else(data: str) -> None:
    ensemble = make_ensemble(config(data=data))
    names = [name for name in ensemble.tensors if ".field." in name and name.endswith(".weight")]
    assert len(names) == 3
    for member, most in enumerate((1.0, 3.0)):
        with torch.no_grad():
            for name in names:
                weight = ensemble.tensors[name][member]
                weight.mul_(most / torch.linalg.svdvals(weight.flatten(1)).max())
    before = {name: tensor.detach().clone() for name, tensor in ensemble.tensors.items()}
    bound_field(ensemble, 2.0)
    for name, tensor in ensemble.tensors.items():
        scales = torch.tensor([1.0, 2 / 3 if name in names else 1.0]).reshape(-1, *(tensor.ndim - 1) * [1])
        assert torch.allclose(tensor, before[name] * scales)


def test_a_bound_holds_after_the_last_update(tmp_path: Path) -> None:
    largest = {}
    for name, changes in {"plain": {}, "bounded": {"treatment": Treatment(spectral=0.9)}}.items():
        trained(tmp_path / name, config(**changes))
        lift = model(tmp_path / name).tensors["0.field.lift.weight"]
        largest[name] = float(torch.linalg.matrix_norm(lift.flatten(2), ord=2).max())
    assert largest["bounded"] <= 0.9 * (1 + 1e-6) < largest["plain"]
