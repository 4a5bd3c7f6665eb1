"""Many iterations at once against the plain loop. A CPU runs the step as it is written; only a GPU captures it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from windermere.errors import DivergedError, UsageError
from windermere.paper.training import Adaptation, captured, make_ensemble, open_run, train
from windermere.paper.training.batches import Batches
from windermere.paper.training.captured import CapturedSteps, can_capture
from windermere.paper.training.checkpoint import make_optimizer, pack
from windermere.paper.training.evaluation import member_losses
from windermere.paper.training.iteration import one_iteration
from windermere.paper.training.trainer import Training
from windermere.solvers import FixedStep, OnGrid, Solver

from .small import a_config, adapted_config, checkpoint, model, rows, some_spheres, trained


def assert_close_tensors(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Where a gradient is rounding and nothing else, Adam takes a part of its step of 1e-3 all the same, and the
    parameters are apart by that; the moments are not."""
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        atol = 1e-5 if name.startswith("optimizer/") else 1e-4
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=atol, msg=name)


def assert_close_run(one: Path, other: Path) -> None:
    """Equal but for the rounding of float32: model, moments, and all that was measured on the way."""
    for read in (model, checkpoint):
        assert_close_tensors(read(one).tensors, read(other).tensors)
    for got, want in zip(rows(one), rows(other), strict=True):
        assert got.keys() == want.keys()
        for name, value in want.items():
            close = pytest.approx(value, rel=1e-4, abs=1e-5) if isinstance(value, float) else value
            assert got[name] == close, name


SOLVERS: list[Solver] = [FixedStep.of("euler", steps=5), FixedStep("rk4", step=0.4), OnGrid("euler", (0.0, 0.3, 1.0))]


@pytest.mark.parametrize("seeds", [(3,), (4, 1, 7)], ids=len)
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_captured_steps_train_as_the_plain_loop_does(
    tmp_path: Path, solver: Solver, optimizer: str, seeds: tuple[int, ...]
) -> None:
    config = a_config(solver=solver, optimizer=optimizer, seeds=seeds, iterations=33, log_every=7, evaluate_every=11)
    trained(tmp_path / "plain", config, capture=False)
    trained(tmp_path / "captured", config, capture=True)
    assert_close_run(tmp_path / "captured", tmp_path / "plain")


@pytest.mark.parametrize("adapt", ["paper", "steady"])
@pytest.mark.parametrize("every", [1, 6])
def test_adapted_precision_takes_the_same_decisions(tmp_path: Path, adapt: Adaptation, every: int) -> None:
    rule = {"every": every} if adapt == "paper" else {"every": every, "target": 1e-3}
    config = adapted_config(adapt, rule=rule, seeds=(0, 5), iterations=30)
    trained(tmp_path / "plain", config, capture=False)
    trained(tmp_path / "captured", config, capture=True)
    assert_close_run(tmp_path / "captured", tmp_path / "plain")


@pytest.mark.parametrize("first", [True, False])
def test_a_run_may_be_begun_captured_and_go_on_plainly_or_the_other_way_round(tmp_path: Path, first: bool) -> None:
    config = a_config(seeds=(2, 3), iterations=30)
    trained(tmp_path / "whole", config, capture=False)
    stopped = trained(tmp_path / "pieces", config, stop_at=15, capture=first)
    assert stopped.iteration == 15
    trained(tmp_path / "pieces", config, resume=True, capture=not first)
    assert_close_run(tmp_path / "pieces", tmp_path / "whole")


def test_where_a_step_cannot_be_captured_training_goes_on_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = a_config(seeds=(2, 3), iterations=20)
    trained(tmp_path / "plain", config, capture=False)

    def fails(self: CapturedSteps) -> None:
        self.bad.fill_(1.0)  # as it does for its warm-up
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(CapturedSteps, "_capture", fails)
    with pytest.warns(UserWarning, match="taken one by one: operation not permitted"):
        trained(tmp_path / "captured", config, capture=True)
    assert_close_run(tmp_path / "captured", tmp_path / "plain")


def test_no_graph_outlives_a_plain_iteration(tmp_path: Path) -> None:
    """One that did would keep its gradient accumulators on another stream than a capture's."""
    config = a_config(seeds=(2, 3), iterations=2)
    with open_run(tmp_path / "run", config) as run:
        last = one_iteration(Training(config, *some_spheres(), run))
    assert not last.losses.requires_grad
    assert not last.logits.requires_grad


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_loss_that_is_not_finite_stops_the_captured_training_as_the_plain_one(tmp_path: Path, optimizer: str) -> None:
    config = a_config(optimizer=optimizer, lr=1e20, seeds=(5, 6), checkpoint_every=100)
    told = {}
    for name, capture in (("plain", False), ("captured", True)):
        with pytest.raises(DivergedError, match="training stopped in iteration 2: for seed 5, 6, ") as caught:
            trained(tmp_path / name, config, capture=capture)
        told[name] = str(caught.value).replace(str(tmp_path / name), "")
    assert told["captured"] == told["plain"]
    found, wanted = checkpoint(tmp_path / "captured"), checkpoint(tmp_path / "plain")
    assert found.meta["evaluations"] == wanted.meta["evaluations"]
    assert found.meta["iteration"] == 1
    for name, tensor in wanted.tensors.items():
        torch.testing.assert_close(found.tensors[name], tensor, rtol=1e-3, atol=1e-5)


def test_a_bad_sample_stops_the_captured_training_where_it_is_met(tmp_path: Path) -> None:
    training_set, test_set = some_spheres()
    batches = Batches(200, 16, [3, 8], "cpu")
    met = next(i for i in range(100) if (batches.indices(i) == 17).any())
    training_set[0][17] = float("nan")
    config = a_config(seeds=(3, 8), log_every=50, checkpoint_every=50, evaluate_every=50, iterations=50)
    with open_run(tmp_path, config) as run, pytest.raises(DivergedError, match=f"in iteration {met + 1}: for seed "):
        train(config, training_set, test_set, run, capture=True)
    assert checkpoint(tmp_path).meta["iteration"] == met
    assert all(tensor.isfinite().all() for tensor in checkpoint(tmp_path).tensors.values())


def steps_for(seeds: tuple[int, ...], **changes: Any) -> CapturedSteps:
    config = a_config(seeds=seeds, **changes)
    ensemble = make_ensemble(config)
    optimizer = make_optimizer(config.optimizer, ensemble.parameters(), config.lr)
    return CapturedSteps(ensemble, optimizer, some_spheres()[0], Batches(200, 16, config.seeds, "cpu"))


def test_members_may_train_with_steps_of_their_own() -> None:
    solvers = [FixedStep.of("euler", steps=n) for n in (3, 8)]
    steps, plain = steps_for((1, 2)), steps_for((1, 2))
    steps.use(solvers)
    assert steps.run(0, 9) == 9
    for iteration in range(9):
        chosen = Batches(200, 16, (1, 2), "cpu").indices(iteration)
        plain.optimizer.zero_grad()
        losses = member_losses(plain.ensemble(plain.inputs[chosen], solvers), plain.labels[chosen])
        losses.sum().backward()  # type: ignore[no-untyped-call]
        plain.optimizer.step()
    assert steps.evaluations.tolist() == [3, 8]
    assert steps.last is not None
    torch.testing.assert_close(steps.last.losses, losses.detach(), rtol=1e-5, atol=1e-6)
    assert_close_tensors(pack(steps.ensemble, steps.optimizer), pack(plain.ensemble, plain.optimizer))


def test_a_step_after_a_bad_one_changes_nothing_but_makes_the_optimizers_state() -> None:
    steps = steps_for((1, 2))
    steps.use([FixedStep.of("euler", steps=2)] * 2)
    before = {name: tensor.clone() for name, tensor in pack(steps.ensemble, steps.optimizer).items()}
    steps.bad.fill_(1.0)
    steps.step()
    after = pack(steps.ensemble, steps.optimizer)
    assert len(after) == 4 * len(before)
    assert steps.good.tolist() == [0]
    for name, tensor in after.items():
        assert torch.equal(tensor, before.get(name, torch.zeros_like(tensor)))


def test_other_steps_go_where_the_first_ones_lay_and_room_grows_by_powers_of_two() -> None:
    steps = steps_for((1, 2))
    steps.use([FixedStep.of("euler", steps=n) for n in (5, 6)])
    first = steps.steps.sizes
    assert first.shape == (2, 8)
    steps.use([FixedStep.of("euler", steps=n) for n in (2, 8)])
    assert steps.steps.sizes is first
    assert steps.steps.counts.tolist() == [2, 8]
    np.testing.assert_allclose(first, [[0.5] * 2 + [0] * 6, [0.125] * 8])
    steps.use([FixedStep.of("euler", steps=n) for n in (2, 9)])
    assert steps.steps.sizes.shape == (2, 16)


def test_slow_steps_come_back_to_the_clock_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "SECONDS_AT_ONCE", 1e-9)
    steps = steps_for((1,))
    steps.use([FixedStep.of("euler", steps=2)])
    assert [steps.run(i, 100) for i in (0, 16)] == [captured.FIRST_AT_ONCE, 1]


def test_on_a_cpu_the_plain_loop_trains() -> None:
    config = a_config()
    assert not can_capture(make_ensemble(config), config.solver, config.gradient, some_spheres()[0][0])


def test_a_step_that_goes_back_by_the_adjoint_is_not_taken_for_another(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no walk of its own"):
        trained(tmp_path, a_config(gradient="adjoint", iterations=3), capture=True)


def test_what_is_noted_for_the_optimizer_is_float32_whatever_the_default(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert trained(tmp_path, a_config(iterations=3), capture=True).finished
    finally:
        torch.set_default_dtype(torch.float32)


def test_batches_of_several_iterations_are_those_of_each() -> None:
    batches = Batches(50, 16, (3, 4, 3), "cpu")
    several = batches.several(2, 9)
    assert several.shape == (9, 3, 16)
    for i, chosen in enumerate(several):
        assert torch.equal(chosen, Batches(50, 16, (3, 4, 3), "cpu").indices(2 + i))
    assert torch.equal(several[:, 0], several[:, 2])


class Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The names of all operations inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_step_asks_the_device_for_no_number(optimizer: str) -> None:
    steps = steps_for((1, 2), optimizer=optimizer)
    steps.use([FixedStep.of("euler", steps=2)] * 2)
    steps.step()  # the first one makes the optimizer's state
    with Seen() as seen:
        steps.step()
    assert "_local_scalar_dense" not in seen.names
    assert not {"nonzero", "is_nonzero", "equal", "masked_select"} & set(seen.names)
    assert f"_fused_{optimizer}_" in seen.names
