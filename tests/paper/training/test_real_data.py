"""A few iterations on the real MNIST, where it is on this machine."""

from math import isfinite
from pathlib import Path

import pytest

from tests.paper.data.test_real_data import real
from windermere.paper.training import RunConfig, evaluate, open_run, paper_settings, train, trained_ensemble
from windermere.records import read_metrics
from windermere.solvers import FixedStep

pytestmark = pytest.mark.real_data


def test_mnist_trains_with_the_papers_optimizer_and_is_evaluated_with_a_finer_solver(tmp_path: Path) -> None:
    data, euler = real("mnist"), FixedStep.of("euler", steps=2)
    settings = {**paper_settings("mnist", euler), "iterations": 3, "batch_size": 32}
    config = RunConfig(data="mnist", solver=euler, seeds=(0,), log_every=1, **settings)
    test_set = (data.test.inputs[:50], data.test.labels[:50])
    with open_run(tmp_path, config) as run:
        outcome = train(config, data.train, test_set, run)
    rows = read_metrics(tmp_path)
    assert [row["iteration"] for row in rows] == [1, 2, 3]
    assert all(isfinite(row["loss"]) for row in rows)
    assert [row["evaluations_forward"] for row in rows] == [2, 4, 6]
    found = trained_ensemble(tmp_path).ensemble
    assert outcome.test == evaluate(found, [euler], test_set)
    finer = evaluate(found, [FixedStep.of("rk4", steps=2)], test_set)
    assert (finer.evaluations, finer.samples) == ([8], 50)
