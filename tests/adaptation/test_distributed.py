"""Two real processes, each with a batch of its own, over gloo."""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from windermere.adaptation import Score, State, StepAdaptation, review
from windermere.adaptation.distributed import averaged
from windermere.solvers import Solver

RANKS = 2
CONTROLLER = StepAdaptation(train="euler", check="midpoint")


def own_score(rank: int, solver: Solver) -> Score:
    """By itself rank 0 sees scores that agree, rank 1 scores that differ by 0.3; on average by 0.15."""
    lost = 0.3 if rank == 1 and solver.method == "midpoint" else 0.0
    return Score(value=0.9 - lost, steps=10 + rank, evaluations=40 - rank)


def decide(rank: int, score_of: str) -> State:
    tell = averaged if score_of == "all ranks" else lambda score: score
    state = CONTROLLER.start(0.01)
    trained = tell(own_score(rank, CONTROLLER.solver(state)))
    return review(CONTROLLER, state, trained, lambda solver: tell(own_score(rank, solver)))


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    try:
        found = {
            "score": vars(averaged(Score(value=rank, distance=rank / 2, steps=10 + rank, evaluations=40 - rank))),
            "own": decide(rank, "this rank").to_dict(),
            "shared": decide(rank, "all ranks").to_dict(),
        }
    finally:
        dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


def test_a_score_is_its_own_average_where_nothing_is_distributed() -> None:
    score = Score(value=0.7, steps=3, evaluations=6)
    assert averaged(score) == score


def test_two_ranks_with_different_batches_take_the_same_decision(tmp_path: Path) -> None:
    spawn(work, args=(str(tmp_path),), nprocs=RANKS)  # type: ignore[no-untyped-call]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(RANKS))
    assert (
        first["score"]
        == second["score"]
        == {
            "value": 0.5,
            "distance": 0.25,
            "steps": 11,
            "evaluations": 40,
        }
    )
    assert first["own"]["precision"] == pytest.approx(0.011)
    assert second["own"]["precision"] == 0.005
    assert first["shared"] == second["shared"]
    assert first["shared"]["precision"] == 0.005
    assert first["shared"]["decision"]["checked"] == pytest.approx(0.75)
