"""RunConfig: frozen, keyword-only, checked, and the same after a trip through JSON."""

import json
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any, get_args

import pytest

from windermere.adaptation import RandomSteps, StepAdaptation
from windermere.errors import RunError, UnknownNameError, UsageError
from windermere.paper.training import Adaptation, RunConfig, make_controller, paper_settings
from windermere.paper.training.config import LATER
from windermere.paper.training.treatment import Treatment
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver

from .small import DEFAULTS, a_config, adapted_config

ADAPTATIONS: tuple[Adaptation, ...] = get_args(Adaptation)
SOLVERS: list[Solver] = [
    FixedStep("rk4", step=0.3),
    FixedStep.of("euler", steps=7),
    OnGrid("midpoint", (0.0, 0.1, 1.0)),
    Adaptive("dopri54", tolerance=1e-4),
    Adaptive("fehlberg21", rtol=1e-3, atol=1e-6, control="sample", max_steps=77),
]


def test_a_config_is_frozen_and_takes_keywords_only() -> None:
    with pytest.raises(FrozenInstanceError):
        a_config().lr = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional"):
        RunConfig(*DEFAULTS.values())  # type: ignore[call-arg]


def test_nothing_that_decides_a_training_has_a_default() -> None:
    for name in ("data", "solver", "seeds", "iterations", "batch_size", "optimizer", "lr"):
        with pytest.raises(TypeError, match=f"missing.*'{name}'"):
            RunConfig(**{key: value for key, value in DEFAULTS.items() if key != name})


@pytest.mark.parametrize("name", ["iterations", "batch_size", "log_every", "evaluate_every", "checkpoint_every"])
@pytest.mark.parametrize("value", [0, -3, 2.5])
def test_counts_are_whole_and_at_least_one(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name} must be a whole number, at least 1, not {value}"):
        a_config(**{name: value})


@pytest.mark.parametrize("seeds", [(), (1, 1), (0, -1), (2**63,)])
def test_seeds_are_different_numbers_from_zero_on(seeds: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="seeds must be one or more different numbers from 0 to 2"):
        a_config(seeds=seeds)


def test_the_largest_seed_can_be_used() -> None:
    assert a_config(seeds=(2**63 - 1,)).seeds == (2**63 - 1,)


@pytest.mark.parametrize("lr", [0.0, -1e-3, float("nan"), float("inf")])
def test_a_learning_rate_is_positive_and_finite(lr: float) -> None:
    with pytest.raises(UsageError, match="the learning rate must be positive and finite"):
        a_config(lr=lr)


@pytest.mark.parametrize(
    ("kind", "name", "nearest"),
    [("optimizer", "adm", "adam"), ("gradient", "adjiont", "adjoint"), ("dtype", "float23", "float32")],
)
def test_an_unknown_name_is_refused_and_the_nearest_offered(kind: str, name: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError, match=f"there is no {kind} '{name}': did you mean '{nearest}'"):
        a_config(**{kind: name})


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_a_config_is_the_same_after_a_trip_through_json(solver: Solver) -> None:
    config = a_config(solver=solver, seeds=(3, 1, 2**62), gradient="adjoint", dtype="float64", lr=0.1 + 0.2)
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_every_field_is_written() -> None:
    assert set(a_config().to_dict()) == {field.name for field in fields(RunConfig)}


def test_a_field_of_a_later_version_is_named() -> None:
    with pytest.raises(RunError, match="fields this version does not know: schedule, warmup"):
        RunConfig.from_dict({**a_config().to_dict(), "warmup": 10, "schedule": "cosine"})


@pytest.mark.parametrize(
    "change",
    [
        {"solver": None},
        {"solver": {"kind": "FixedStep", "method": "euler"}},
        {"solver": {"kind": "Magic", "method": "euler", "step": 0.1}},
        {"solver": "euler"},
        {"controller": "paper"},
        {"controller": {"kind": "Magic"}},
        {"controller": {"kind": "StepAdaptation", "train": "euler", "check": "euler"}},
        {"controller": {"kind": "StepAdaptation", "train": "midpoint", "check": "rk4"}},
        {"seeds": 3},
        {"seeds": ["a"]},
        {"iterations": "many"},
        {"seeds": [True]},
        {"data": None},
        {"data": ["sphere2"]},
        {"device": 0},
        {"data_seed": "0"},
        {"data_seed": -1},
        {"batch_size": True},
        {"lr": None},
        {"lr": -1.0},
    ],
    ids=str,
)
def test_what_is_no_config_is_told_as_a_damaged_run(change: dict[str, Any]) -> None:
    with pytest.raises(RunError, match=r"config\.json is not a complete run"):
        RunConfig.from_dict({**a_config().to_dict(), **change})


@pytest.mark.parametrize("name", ["data", "solver", "seeds", "lr", "controller"])
def test_a_missing_field_is_named(name: str) -> None:
    values = a_config().to_dict()
    del values[name]
    with pytest.raises(RunError, match=rf"config\.json is not a complete run.*{name}"):
        RunConfig.from_dict(values)


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_precision_is_a_tolerance_for_adaptive_solvers_and_a_step_for_others(solver: Solver) -> None:
    expected = "tolerance" if isinstance(solver, Adaptive) else "step"
    assert replace(a_config(), solver=solver).precision_name == expected


@pytest.mark.parametrize("solver", [FixedStep("euler", step=0.3), Adaptive("fehlberg21", tolerance=1e-3)], ids=str)
@pytest.mark.parametrize("adapt", ["paper", "steady"])
def test_a_config_keeps_its_controller_on_a_trip_through_json(solver: Solver, adapt: Adaptation) -> None:
    config = adapted_config(adapt, solver=solver, rule={"every": 7, "decrease": 0.1 + 0.2})
    again = RunConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert again.controller == make_controller(adapt, solver, every=7, decrease=0.1 + 0.2)
    assert again.adapt == adapt


def test_a_field_that_no_controller_has_is_refused() -> None:
    values = adapted_config("steady").to_dict()
    values["controller"]["momentum"] = 0.9
    with pytest.raises(RunError, match=r"config\.json is not a complete run: .*'momentum'"):
        RunConfig.from_dict(values)


def test_a_config_from_before_controllers_is_told_what_to_do() -> None:
    values = a_config().to_dict()
    del values["controller"]
    with pytest.raises(RunError, match=r"does not know: adapt, check; use the version .* or train anew in another"):
        RunConfig.from_dict({**values, "adapt": "paper", "check": None})


@pytest.mark.parametrize("controller", ["paper", StepAdaptation, {"kind": "StepAdaptation"}], ids=str)
def test_what_is_no_controller_is_refused(controller: Any) -> None:
    with pytest.raises(UsageError, match="a run's controller is one of Windermere's own, not"):
        a_config(controller=controller)


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        (FixedStep("euler", step=1e-3), "h = 1/1000, .* no finer than euler, h = 1/500, a budget of 500 steps"),
        (FixedStep("euler", step=1.5), r"h = 1\.5, .* no coarser than euler, h = 1: start within"),
        (Adaptive("dopri54", tolerance=1e-9), "tol = 1e-09, .* no finer than dopri54, tol = 2.5e-07: start within"),
    ],
    ids=str,
)
def test_a_start_that_adaptation_would_change_is_refused(solver: Solver, words: str) -> None:
    for adapt in ADAPTATIONS:
        with pytest.raises(UsageError, match=f"adaptation cannot start from {solver.method}, {words}"):
            adapted_config(adapt, solver=solver)
    assert adapted_config("paper", solver=FixedStep("euler", step=1e-3), first_step="initial")


def test_steps_for_another_span_than_the_models_are_refused() -> None:
    with pytest.raises(UsageError, match="solved for a time of 1, not of 2"):
        adapted_config("paper", rule={"span": 2})


@pytest.mark.parametrize("adapt", ["paper", "steady"])
@pytest.mark.parametrize("solver", [SOLVERS[2], SOLVERS[4], Adaptive("dopri54", tolerance=1e-4, max_steps=9)], ids=str)
def test_adaptation_refuses_a_solver_of_which_it_would_keep_the_precision_only(
    solver: Solver, adapt: Adaptation
) -> None:
    with pytest.raises(UsageError, match="would become"):
        adapted_config(adapt, solver=solver)


FIXED, ADAPTIVE = SOLVERS[0], SOLVERS[3]
SPHERES = {"iterations": 10_000, "batch_size": 128, "optimizer": "adam", "lr": 1e-4}
MNIST = {"iterations": 30 * (60_000 // 256), "batch_size": 256}
CIFAR10 = {"iterations": 40 * (50_000 // 256), "batch_size": 256, "optimizer": "adam", "lr": 1e-3}


@pytest.mark.parametrize(
    ("data", "solver", "expected"),
    [
        *((f"sphere{d}", solver, SPHERES) for d in (2, 3, 10, 900) for solver in (FIXED, ADAPTIVE)),
        ("mnist", FIXED, {**MNIST, "optimizer": "sgd", "lr": 1e-2}),
        ("mnist", SOLVERS[2], {**MNIST, "optimizer": "sgd", "lr": 1e-2}),
        ("mnist", ADAPTIVE, {**MNIST, "optimizer": "adam", "lr": 1e-4}),
        ("cifar10", FIXED, CIFAR10),
        ("cifar10", ADAPTIVE, CIFAR10),
    ],
)
def test_the_papers_settings_are_those_of_its_appendix(data: str, solver: Solver, expected: dict[str, Any]) -> None:
    assert paper_settings(data, solver) == expected
    RunConfig(data=data, solver=solver, seeds=(0,), **expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"random_steps": RandomSteps(mean=3, finish=0.0)},
        {"treatment": Treatment(methods=(("midpoint", 3), ("rk4", 2)), end=0.5)},
        {"treatment": Treatment(stages=((0.5, 2), (1.0, 8)), kinetic=0.1, jacobian=0.01)},
        {"treatment": Treatment(spectral=2.0)},
    ],
)
def test_what_is_done_to_each_batch_is_written_and_is_in_the_digest(changes: dict[str, Any]) -> None:
    config = a_config(**changes)
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.digest != a_config().digest


def test_without_it_the_digest_is_that_of_earlier_versions() -> None:
    assert a_config().digest == "48ec6b19811a00d2862cfa390dab63b42dbaf2ff517bfcc1108a13a7df4e55d3"
    earlier = {name: value for name, value in a_config().to_dict().items() if name not in LATER}
    assert RunConfig.from_dict(earlier) == a_config()


def test_random_steps_are_of_fixed_size_not_adapted_and_for_the_papers_time() -> None:
    for changes, words in (
        ({"solver": Adaptive("dopri54", tolerance=1e-3)}, "random steps are fixed ones"),
        ({"controller": StepAdaptation(train="euler", check="midpoint")}, "random steps are not adapted"),
        ({"random_steps": RandomSteps(span=2.0)}, "leave span out"),
        ({"random_steps": 3}, "random_steps is None or a RandomSteps"),
    ):
        with pytest.raises(UsageError, match=words):
            a_config(**{"random_steps": RandomSteps(), **changes})
