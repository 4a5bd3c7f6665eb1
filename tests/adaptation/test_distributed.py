"""Two real processes, each with a batch of its own, over gloo."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from tests.adaptation.kit import INSTALLED, Kit, batches
from tests.processes import leave
from tests.torches import TORCH
from windermere.adaptation import (
    Controller,
    ControllerState,
    Score,
    SteadySteps,
    StepAdaptation,
    review,
    shared_review,
)
from windermere.adaptation.distributed import averaged
from windermere.adaptation.signals import moved_mass
from windermere.errors import StepBudgetError
from windermere.records import plain
from windermere.solvers import FixedStep, Solver

RANKS = 2
PAPER = StepAdaptation(train="euler", check="midpoint")
STEADY = SteadySteps(train="euler", check="midpoint", target=0.02)
SOON = SteadySteps(train="euler", check="midpoint", every=2, target=0.02)
meets = pytest.mark.skipif(TORCH == (2, 4), reason="two ranks of PyTorch 2.4 at times wait for each other forever")


def own_score(rank: int, solver: Solver) -> Score:
    """By itself rank 0 sees scores that agree and hardly a distance, rank 1 scores that differ by 0.3 and a distance of
    0.08; on average they differ by 0.15, and the distance is 0.0405."""
    checked = solver.method == "midpoint"
    lost, moved = (0.3, 0.08) if rank == 1 else (0.0, 0.001)
    return Score(value=0.9 - lost * checked, distance=moved * checked, steps=10 + rank, evaluations=40 - rank)


def decide(controller: Controller, tell: Callable[[Score], Score], rank: int) -> ControllerState:
    state = controller.start(0.01)
    trained = tell(own_score(rank, controller.solver(state)))
    return review(controller, state, trained, lambda solver: tell(own_score(rank, solver)))


def decide_together(rank: int, *, fails: bool) -> dict[str, Any]:
    """From states that are not the same; with `fails`, rank 1 cannot solve with the check solver."""

    def score(solver: Solver) -> Score:
        if fails and rank == 1 and solver.method == "midpoint":
            raise StepBudgetError("too many steps")
        return own_score(rank, solver)

    state = PAPER.start(0.01 + 0.01 * rank)
    return shared_review(PAPER, state, own_score(rank, PAPER.solver(state)), score).to_dict()


def decide_all(rank: int) -> dict[str, Any]:
    controllers: dict[str, Controller] = {"paper": PAPER, "steady": STEADY}
    return {
        "score": vars(averaged(Score(value=rank, distance=rank / 2, steps=10 + rank, evaluations=40 - rank))),
        "plain": vars(averaged(Score(value=rank))),
        "alone": {name: decide(c, lambda score: score, rank).to_dict() for name, c in controllers.items()},
        "shared": {name: decide(c, averaged, rank).to_dict() for name, c in controllers.items()},
        "together": decide_together(rank, fails=False),
        "failing": decide_together(rank, fails=True),
    }


def fit_data_parallel(rank: int) -> dict[str, Any]:
    """Under Lightning's own strategy, as on two nodes; each rank sees another half of the data, and reviews batch 2."""
    os.environ |= {"NODE_RANK": str(rank), "LOCAL_RANK": "0"}
    kit = Kit(INSTALLED[0])
    distances: list[float] = []

    def distance(trained: Tensor, checked: Tensor) -> float:
        distances.append(float(moved_mass(trained, checked)))
        return distances[-1]

    adapt, module = kit.adapt(SOON, distance=distance), kit.Classifier(FixedStep("euler", step=0.5))
    kit.trainer(3, adapt, strategy="ddp", devices=1, num_nodes=RANKS).fit(module, batches())
    steps = [solver.precision for solver in module.used]
    return {"distances": distances, "steps": steps, "state": adapt.state.to_dict()}


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    try:
        found = {"decided": decide_all(rank), "fitted": fit_data_parallel(rank) if INSTALLED else {}}
        dist.barrier()  # or one rank might close what the other still needs for its end, and gloo would abort it
    finally:
        dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(plain(found)))
    leave()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks has found."""
    folder = tmp_path_factory.mktemp("ranks")
    spawn(work, args=(str(folder),), nprocs=RANKS)  # type: ignore[no-untyped-call]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


def test_a_score_is_its_own_average_where_nothing_is_distributed() -> None:
    score = Score(value=0.7, distance=0.01, steps=3, evaluations=6)
    assert averaged(score) == score


@meets
def test_two_ranks_with_different_batches_take_the_same_decisions(ranks: list[dict[str, Any]]) -> None:
    first, second = (found["decided"] for found in ranks)
    assert first["score"] == second["score"] == {"value": 0.5, "distance": 0.25, "steps": 11, "evaluations": 40}
    assert first["plain"] == second["plain"] == {"value": 0.5, "distance": None, "steps": None, "evaluations": 0}
    for name in ("paper", "steady"):
        assert first["alone"][name]["precision"] == pytest.approx(0.011)
        assert second["alone"][name]["precision"] == 0.005
        assert first["shared"][name] == second["shared"][name]
        assert first["shared"][name]["precision"] < 0.01
    assert first["together"] == second["together"] == first["shared"]["paper"]
    assert first["failing"]["decision"]["checked"] is second["failing"]["decision"]["checked"] is None
    assert first["failing"] == second["failing"]
    assert first["failing"]["precision"] == 0.005
    assert first["shared"]["paper"]["decision"]["checked"] == pytest.approx(0.75)
    assert first["shared"]["steady"]["decision"]["signal"] == pytest.approx(0.0405)


@meets
@pytest.mark.skipif(not INSTALLED, reason="needs Lightning")
def test_two_ranks_of_a_lightning_trainer_follow_the_mean_of_their_distances(ranks: list[dict[str, Any]]) -> None:
    first, second = (found["fitted"] for found in ranks)
    (nothing, one), (nothing_either, other) = first["distances"], second["distances"]
    assert nothing == nothing_either == 0  # the first batch is compared with itself, to see that it can be
    assert one != other
    assert first["state"] == second["state"]
    assert first["state"]["decision"]["signal"] == pytest.approx((one + other) / 2)
    assert first["steps"] == second["steps"] == [0.5, 0.5, first["state"]["precision"]]
    assert first["state"]["precision"] < 0.5
