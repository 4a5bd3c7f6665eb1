"""Image networks trained in a named arithmetic: captured or not, stopped and resumed, with either gradient."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.backends import cudnn

from windermere.errors import DivergedError, RunError, UnknownNameError, UsageError
from windermere.nn.arithmetic import arithmetic_of
from windermere.paper.training import (
    Adaptation,
    Labelled,
    RunConfig,
    StopSign,
    captured,
    evaluate,
    make_controller,
    make_ensemble,
    open_run,
    resumed_config,
    train,
    trained_ensemble,
)
from windermere.paper.training.batches import Batches
from windermere.paper.training.captured import CapturedSteps, can_capture
from windermere.paper.training.checkpoint import make_optimizer
from windermere.solvers import FixedStep, Solver, solver_to_dict

from .small import a_config, assert_same_bits, assert_same_run, checkpoint, model, rows
from .test_captured import Seen, assert_close_run

BATCH = 3


def some_images() -> tuple[Labelled, Labelled]:
    generator = torch.Generator().manual_seed(0)
    pictures = torch.rand(16, 1, 28, 28, generator=generator) / 4
    labels = torch.randint(10, (16,), generator=generator)
    return (pictures[:12], labels[:12]), (pictures[12:], labels[12:])


def images_config(**changes: Any) -> RunConfig:
    given = {"data": "mnist", "iterations": 4, "batch_size": BATCH, "lr": 1e-4, "log_every": 2, "evaluate_every": 4}
    return a_config(**{**given, "checkpoint_every": 2, **changes})


def trained(path: Path, config: RunConfig, *, stop_at: int | None = None, **how: Any) -> None:
    sign = StopSign()

    def report(now: Any) -> None:
        if stop_at is not None and now.iteration >= stop_at:
            sign.reason = "interrupted"

    with open_run(path, config, resume=how.pop("resume", False)) as run:
        train(config, *some_images(), run, sign=sign, report=report, **how)


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
@pytest.mark.parametrize("arithmetic", ["float32", "bfloat16"])
def test_captured_steps_train_as_the_plain_loop_does(tmp_path: Path, gradient: str, arithmetic: str) -> None:
    config = images_config(gradient=gradient, arithmetic=arithmetic, seeds=(3, 0))
    trained(tmp_path / "plain", config, capture=False)
    trained(tmp_path / "captured", config, capture=True)
    assert_close_run(tmp_path / "captured", tmp_path / "plain")
    last = rows(tmp_path / "captured")[-1]
    assert last["evaluations_forward"] == 8
    assert last["evaluations_recomputed"] == (8 if gradient == "checkpoint" else 0)


@pytest.mark.parametrize("adapt", ["paper", "steady"])
def test_adapted_steps_take_the_same_decisions(tmp_path: Path, adapt: Adaptation) -> None:
    rule: dict[str, Any] = {} if adapt == "paper" else {"target": 1e-3}
    config = images_config(iterations=5)
    config = replace(config, controller=make_controller(adapt, config.solver, every=2, **rule))
    trained(tmp_path / "plain", config, capture=False)
    trained(tmp_path / "captured", config, capture=True)
    assert_close_run(tmp_path / "captured", tmp_path / "plain")
    assert len({row["step"] for row in rows(tmp_path / "captured") if "step" in row}) > 1


def test_rounding_is_seen_in_what_is_trained_and_both_gradients_train_alike(tmp_path: Path) -> None:
    for arithmetic in ("float32", "bfloat16"):
        for gradient in ("backprop", "checkpoint"):
            config = images_config(gradient=gradient, arithmetic=arithmetic, iterations=2)
            trained(tmp_path / arithmetic / gradient, config)
    exact, rounded = (model(tmp_path / name / "backprop").tensors for name in ("float32", "bfloat16"))
    assert any(not torch.equal(exact[name], rounded[name]) for name in exact)
    for name, tensor in rounded.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, model(tmp_path / "bfloat16" / "checkpoint").tensors[name], rtol=0, atol=1e-3)


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
def test_a_run_in_bfloat16_that_was_stopped_and_resumed_is_the_same_bit_for_bit(
    tmp_path: Path, gradient: str, capture: bool
) -> None:
    config = images_config(gradient=gradient, arithmetic="bfloat16")
    trained(tmp_path / "whole", config, capture=capture)
    trained(tmp_path / "pieces", config, stop_at=2, capture=capture)
    assert checkpoint(tmp_path / "pieces").meta["iteration"] == 2
    trained(tmp_path / "pieces", config, resume=True, capture=capture)
    assert_same_run(tmp_path / "pieces", tmp_path / "whole")


def test_a_run_goes_on_in_its_own_arithmetic_only(tmp_path: Path) -> None:
    trained(tmp_path, images_config(arithmetic="tf32"), stop_at=2)
    assert resumed_config(tmp_path, {}).arithmetic == "tf32"
    with pytest.raises(RunError, match=r"started with arithmetic = tf32 \(not bfloat16\)"):
        resumed_config(tmp_path, {"arithmetic": "bfloat16"})


def test_a_run_from_before_there_was_a_choice_is_one_in_float32() -> None:
    stored = images_config().to_dict()
    assert stored.pop("arithmetic") == "float32"
    assert RunConfig.from_dict(json.loads(json.dumps(stored))) == images_config()


def test_the_cudnn_flags_of_a_run_end_with_it(tmp_path: Path) -> None:
    before, inside = (cudnn.allow_tf32, cudnn.benchmark), []

    def report(_: Any) -> None:
        inside.append((cudnn.allow_tf32, cudnn.benchmark))

    for arithmetic in ("float32", "tf32"):
        config = images_config(arithmetic=arithmetic, iterations=1)
        with open_run(tmp_path / arithmetic, config) as run:
            train(config, *some_images(), run, report=report)
        assert (cudnn.allow_tf32, cudnn.benchmark) == before
    assert inside == [(False, True), (True, True)]
    config = images_config(arithmetic="tf32", optimizer="sgd", lr=1e25)
    with open_run(tmp_path / "diverged", config) as run, pytest.raises(DivergedError):
        train(config, *some_images(), run)
    assert (cudnn.allow_tf32, cudnn.benchmark) == before


def test_a_trained_run_computes_as_it_was_trained_unless_told_otherwise(tmp_path: Path) -> None:
    config = images_config(arithmetic="bfloat16", iterations=2)
    trained(tmp_path, config)
    own, exact = trained_ensemble(tmp_path), trained_ensemble(tmp_path, arithmetic="float32")
    assert [arithmetic_of(t.ensemble.template) for t in (own, exact)] == ["bfloat16", "float32"]
    assert own.config.arithmetic == exact.config.arithmetic == "bfloat16"
    assert_same_bits(own.ensemble.tensors, exact.ensemble.tensors)
    inputs, labels = some_images()[1]
    logits = [t.ensemble(inputs[None], t.solvers) for t in (own, exact)]
    assert not torch.equal(*logits)
    torch.testing.assert_close(*logits, rtol=5e-2, atol=5e-2)
    assert evaluate(own.ensemble, own.solvers, (inputs, labels)).samples == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arithmetic": "bf16"}, "there is no arithmetic 'bf16': did you mean 'bfloat16'"),
        ({"arithmetic": "tf32", "dtype": "float64"}, "tf32 rounds products of float32, not of float64: leave one"),
        ({"arithmetic": "bfloat16", "data": "sphere2"}, "bfloat16 is for images .*, and the data are 'sphere2'"),
    ],
    ids=str,
)
def test_an_arithmetic_that_cannot_be_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises((UnknownNameError, UsageError), match=words):
        images_config(**change)


def test_what_a_run_was_trained_with_names_its_arithmetic() -> None:
    config = images_config()
    assert replace(config, arithmetic="tf32").trained_with == f"{config.trained_with} in tf32"
    assert solver_to_dict(config.solver) == replace(config, arithmetic="tf32").to_dict()["solver"]


# ---------------------------------------------------------------------------------------------------------
# Captured steps


def steps_for(**changes: Any) -> CapturedSteps:
    config = images_config(**changes)
    ensemble = make_ensemble(config)
    optimizer = make_optimizer(config.optimizer, ensemble.parameters(), config.lr)
    return CapturedSteps(ensemble, optimizer, some_images()[0], Batches(12, BATCH, config.seeds, "cpu"))


def euler(*steps: int) -> list[Solver]:
    return [FixedStep.of("euler", steps=n) for n in steps]


def test_steps_that_change_are_captured_again_only_when_they_have_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "SETTLED", 3)
    monkeypatch.setattr(captured, "SECONDS_AT_ONCE", 3600.0)  # as many at once as asked for, however slow they are
    steps = steps_for()
    steps.use(euler(1))
    assert steps.patience == 0
    steps.run(0, 2)
    steps.use(euler(1))
    assert (steps.stood, steps.patience) == (2, 0)
    steps.graph = object()  # type: ignore[assignment]
    steps.use(euler(2))
    assert (steps.stood, steps.patience) == (0, 3)
    assert steps.graph is None
    steps.run(2, 2)
    assert steps.stood < steps.patience
    steps.run(4, 1)
    assert steps.stood >= steps.patience
    assert steps.evaluations.tolist() == [2]


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
def test_a_step_asks_the_device_for_no_number(gradient: str) -> None:
    steps = steps_for(gradient=gradient, arithmetic="bfloat16", seeds=(1, 2))
    steps.use(euler(1, 2))
    steps.step()  # the first one makes the optimizer's state
    with Seen() as seen:
        steps.step()
    assert not {"_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select"} & set(seen.names)


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_on_a_cpu_the_plain_loop_trains(gradient: str) -> None:
    config = images_config(gradient=gradient)
    assert not can_capture(make_ensemble(config), config.solver, config.gradient, some_images()[0][0])
