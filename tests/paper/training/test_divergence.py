"""A training that leaves the finite numbers stops before the optimizer's step and keeps the last good state."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from windermere.errors import DivergedError, NonFiniteError
from windermere.paper.training import (
    Ensemble,
    Evaluation,
    RunConfig,
    evaluate,
    evaluation,
    make_ensemble,
    open_run,
    train,
    trainer,
)
from windermere.paper.training.batches import Batches
from windermere.records import read_metrics
from windermere.solvers import Adaptive, FixedStep

from .small import a_config, assert_same_bits, checkpoint, some_spheres, trained


def assert_kept(path: Path, config: RunConfig, iterations: int, reference: Path) -> None:
    """The checkpoint is finite and equals that of a run of so many iterations."""
    found = checkpoint(path)
    assert found.meta["iteration"] == iterations
    assert all(tensor.isfinite().all() for tensor in found.tensors.values())
    if iterations:
        trained(reference, replace(config, log_every=1), stop_at=iterations)
        assert_same_bits(found.tensors, checkpoint(reference).tensors)
    assert not (path / "model.safetensors").exists()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_huge_learning_rate_stops_the_training_with_iteration_and_seed(tmp_path: Path, optimizer: str) -> None:
    config = a_config(optimizer=optimizer, lr=1e20, seeds=(5,), log_every=1, checkpoint_every=100)
    with pytest.raises(DivergedError, match=r"training stopped in iteration 2: for seed 5, .* not finite.*is kept in"):
        trained(tmp_path / "run", config)
    assert_kept(tmp_path / "run", config, 1, tmp_path / "reference")
    assert [row["iteration"] for row in read_metrics(tmp_path / "run")] == [1]


def test_a_diverged_run_resumed_says_the_same_again(tmp_path: Path) -> None:
    config = a_config(optimizer="sgd", lr=1e20, log_every=1, checkpoint_every=100)
    sentences = []
    for resume in (False, True):
        with pytest.raises(DivergedError) as caught:
            trained(tmp_path, config, resume=resume)
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]


def iteration_that_meets(sample: int, seed: int) -> int:
    """Counted from 1."""
    batches = Batches(200, 16, [seed], "cpu")
    return next(i + 1 for i in range(100) if sample in batches.indices(i)[0])


@pytest.mark.parametrize("solver", [FixedStep.of("euler", steps=2), Adaptive("dopri54", tolerance=1e-2)], ids=str)
def test_the_seed_that_meets_a_bad_sample_first_is_the_one_that_is_named(
    tmp_path: Path, solver: FixedStep | Adaptive
) -> None:
    training_set, test_set = some_spheres()
    meets = {seed: iteration_that_meets(17, seed) for seed in (3, 8)}
    first = min(meets, key=lambda seed: meets[seed])
    assert meets[3] != meets[8]
    training_set[0][17] = float("inf")
    config = a_config(solver=solver, seeds=(3, 8))
    with (
        open_run(tmp_path, config) as run,
        pytest.raises(DivergedError, match=f"in iteration {meets[first]}: for seed {first}, "),
    ):
        train(config, training_set, test_set, run)
    assert checkpoint(tmp_path).meta["iteration"] == meets[first] - 1


def spoil(monkeypatch: pytest.MonkeyPatch, change: Callable[[Ensemble], None]) -> None:
    def spoiled(config: RunConfig) -> Ensemble:
        ensemble = make_ensemble(config)
        with torch.no_grad():
            change(ensemble)
        return ensemble

    monkeypatch.setattr(trainer, "make_ensemble", spoiled)


def test_an_infinite_loss_of_one_member_names_its_seed_and_stops_before_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(ensemble: Ensemble) -> None:
        ensemble.tensors["2.bias"][1] = torch.tensor([3e38, -3e38])

    spoil(monkeypatch, change)
    with pytest.raises(DivergedError, match="in iteration 1: the loss is not finite for seed 9: try a smaller"):
        trained(tmp_path, a_config(seeds=(4, 9, 2)))
    kept = checkpoint(tmp_path)
    assert kept.meta["iteration"] == 0
    assert_same_bits(
        {name.removeprefix("model/"): tensor for name, tensor in kept.tensors.items()},
        {name: tensor.detach() for name, tensor in trainer.make_ensemble(a_config(seeds=(4, 9, 2))).tensors.items()},
    )


def with_gradients(change: Callable[[int, Tensor], Tensor]) -> Callable[[Ensemble], None]:
    """All gradients are changed, by the number of the backward pass."""

    def register(ensemble: Ensemble) -> None:
        for tensor in ensemble.parameters():
            passes = count(1)
            hook = partial(lambda passes, gradient: change(next(passes), gradient), passes)
            tensor.register_hook(hook)  # type: ignore[no-untyped-call]

    return register


def test_an_infinite_gradient_of_a_finite_loss_stops_before_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overflow(iteration: int, gradient: Tensor) -> Tensor:
        return gradient if iteration < 4 else torch.cat([gradient[:1], gradient[1:] + float("inf")])

    config = a_config(seeds=(4, 9))
    with monkeypatch.context() as patch:
        spoil(patch, with_gradients(overflow))
        with pytest.raises(DivergedError, match="in iteration 4: the gradient is not finite for seed 9"):
            trained(tmp_path / "run", config)
    with monkeypatch.context() as patch:  # hooks put gradients on autograd's tape, and the last bits are its own
        spoil(patch, with_gradients(lambda _, gradient: gradient))
        assert_kept(tmp_path / "run", config, 3, tmp_path / "reference")


def test_gradients_whose_norm_overflows_are_not_mistaken_for_infinite_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, with_gradients(lambda iteration, gradient: torch.full_like(gradient, 1e30)))
    outcome = trained(tmp_path, a_config(optimizer="sgd", lr=1e-30, iterations=3))
    assert outcome.finished


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 1e300), ("adam", 4e38)])
@pytest.mark.parametrize("checkpoint_every", [1, 100])
def test_a_first_step_that_makes_parameters_infinite_is_seen_before_any_checkpoint(
    tmp_path: Path, checkpoint_every: int, optimizer: str, lr: float
) -> None:
    """Where none is due, with the next loss."""
    with pytest.raises(DivergedError, match=r"stopped after iteration 1: .* not finite; there is no checkpoint yet in"):
        trained(tmp_path, a_config(optimizer=optimizer, lr=lr, checkpoint_every=checkpoint_every))


def test_a_step_that_makes_parameters_infinite_does_not_overwrite_a_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leap(iteration: int, gradient: Tensor) -> Tensor:
        return torch.zeros_like(gradient) if iteration < 4 else torch.full_like(gradient, 1e30)

    spoil(monkeypatch, with_gradients(leap))
    with pytest.raises(DivergedError, match=r"stopped after iteration 4: .* not finite; the last checkpoint is kept"):
        trained(tmp_path, a_config(optimizer="sgd", lr=1e10, checkpoint_every=1, evaluate_every=100))
    found = checkpoint(tmp_path)
    assert found.meta["iteration"] == 3
    assert all(tensor.isfinite().all() for tensor in found.tensors.values())


def test_an_evaluation_that_cannot_be_solved_keeps_the_state_and_leaves_no_model(tmp_path: Path) -> None:
    training_set, test_set = some_spheres()
    test_set[0][3] = float("nan")
    config = a_config(iterations=10, evaluate_every=10)
    for resume in (False, True):
        with (
            open_run(tmp_path, config, resume=resume) as run,
            pytest.raises(DivergedError, match="in the evaluation after iteration 10: the initial state is not finite"),
        ):
            train(config, training_set, test_set, run)
    assert checkpoint(tmp_path).meta["iteration"] == 10
    assert not (tmp_path / "model.safetensors").exists()


def test_whose_evaluation_failed_is_found_without_solving_more_samples_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ten thousand images at once are more than a machine may hold."""
    training_set, test_set = some_spheres()
    test_set[0][-1] = float("nan")
    monkeypatch.setattr(evaluation, "VALUES_AT_ONCE", 2 * 2 * 40 * 25)
    sizes, solve = list[int](), Ensemble.__call__

    def seen(ensemble: Ensemble, x: Tensor, solvers: Any) -> Tensor:
        sizes.append(x.shape[0] * x.shape[1])
        return solve(ensemble, x, solvers)

    monkeypatch.setattr(Ensemble, "__call__", seen)
    config = a_config(seeds=(4, 9), iterations=10, evaluate_every=10)
    with open_run(tmp_path, config) as run, pytest.raises(DivergedError) as caught:
        train(config, training_set, test_set, run)
    assert caught.value.seeds == (4, 9)
    assert max(sizes) == 50


def test_a_failed_evaluation_at_the_end_is_made_again_and_not_replaced_by_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, calls = a_config(iterations=10, evaluate_every=5), count(1)

    def fails_the_second_time(*arguments: Any) -> Evaluation:
        if next(calls) == 2:
            raise NonFiniteError("the field is not finite")
        return evaluate(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "evaluate", fails_the_second_time)
        with pytest.raises(DivergedError, match="in the evaluation after iteration 10"):
            trained(tmp_path / "run", config)
    assert checkpoint(tmp_path / "run").meta["test"] is None
    assert trained(tmp_path / "run", config, resume=True) == trained(tmp_path / "whole", config)


def test_a_tolerance_that_the_dtype_cannot_resolve_is_told_with_its_own_advice(tmp_path: Path) -> None:
    config = a_config(solver=Adaptive("dopri54", tolerance=1e-12))
    with pytest.raises(DivergedError, match=r"in iteration 1: for seed 0, float32 cannot resolve .* float64") as caught:
        trained(tmp_path, config)
    assert "learning rate" not in str(caught.value)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_seed_whose_adjoint_cannot_be_solved_is_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    """Its way there is finite, and so is its loss; on the way back, what has come together flies apart."""

    def change(ensemble: Ensemble) -> None:
        ensemble.tensors["0.field.lower.weight"][1] *= -50

    if not compiled:
        monkeypatch.setattr("windermere.fast.cpu.native.can_walk", lambda *_: False)
    spoil(monkeypatch, change)
    config = a_config(solver=Adaptive("dopri54", tolerance=1e-3), gradient="adjoint", seeds=(4, 9, 2))
    with pytest.raises(DivergedError, match=r"in iteration 1: .*for seed 9") as caught:
        trained(tmp_path, config)
    assert caught.value.seeds == (9,)
    assert checkpoint(tmp_path).meta["iteration"] == 0
