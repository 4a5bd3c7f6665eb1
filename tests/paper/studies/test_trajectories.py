"""Figures 1 and 2, with trainings of a few iterations: what is measured, and that the tables are enough to draw it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.paper.studies.test_toy import assert_drawn, through_csv
from windermere.nn import ode_blocks
from windermere.paper import data
from windermere.paper.studies import plane, trajectories
from windermere.paper.studies.critical import THRESHOLD
from windermere.paper.studies.decision_regions import DECISION_REGIONS, OUTPUTS
from windermere.paper.studies.plane import ACCURACY, HEADS
from windermere.paper.studies.registry import STUDIES, find_study
from windermere.paper.studies.rows import Table, Tables, states_of
from windermere.paper.studies.study import Finished, Study
from windermere.paper.studies.trajectories import PATHS
from windermere.paper.training import open_run, train, trained_ensemble
from windermere.report.frame import Frame
from windermere.solvers import FixedStep

TRAINED = {"fine": FixedStep.of("euler", steps=8), "coarse": FixedStep.of("euler", steps=2)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finished]:
    """Both runs of Figure 1 with two seeds, eight steps for the fine one, and a hundred iterations."""
    folder, loaded = tmp_path_factory.mktemp("trajectories"), data.load("sphere2")
    training_set, test_set = loaded.train, loaded.test
    runs = {}
    for name, config in trajectories.TRAJECTORIES.runs(True).items():
        config = replace(config, solver=TRAINED[name], seeds=(3, 5), iterations=100)
        with open_run(folder / name, config) as run:
            train(config, training_set, test_set, run)
        runs[name] = Finished(name, trained_ensemble(folder / name), test_set, folder / name)
    return runs


def measured(study: Study, finished: dict[str, Finished], folder: Path) -> Tables:
    tables: dict[Table[Any], list[Any]] = {}
    for name in study.runs(True):
        for table, rows in study.measure(finished[name]).items():
            tables.setdefault(table, []).extend(rows)
    return through_csv(Tables(tables), folder)


def test_a_number_of_one_seed_says_so() -> None:
    assert plane.mean_and_range([0.9]) == "0.900 (one seed)"
    assert plane.mean_and_range([0.9, 0.8]) == "0.850 (0.800 to 0.900 over 2 seeds)"


def test_studies_are_found_by_name_in_the_papers_order() -> None:
    assert list(STUDIES)[:4] == ["trajectories", "decision-regions", "fan", "sphere2-fixed"]
    assert len(STUDIES) == 29
    assert find_study("trajectories") is trajectories.TRAJECTORIES


def test_full_runs_have_the_papers_settings_and_quick_ones_fewer_iterations() -> None:
    full, quick = (trajectories.TRAJECTORIES.runs(is_quick) for is_quick in (False, True))
    assert {name: str(config.solver) for name, config in full.items()} == {
        "fine": "euler, h = 1/128",
        "coarse": "euler, h = 1/2",
    }
    assert all(
        (c.iterations, c.lr, c.batch_size, c.seeds) == (10_000, 1e-4, 128, (0, 1, 2, 3, 4)) for c in full.values()
    )
    assert all((c.iterations, c.lr) == (1500, 1e-3) for c in quick.values())
    assert DECISION_REGIONS.runs(False) == {"coarse": full["coarse"]}


def test_the_table_has_each_seeds_accuracy_at_each_number_of_test_steps(
    finished: dict[str, Finished], tmp_path: Path
) -> None:
    table = measured(trajectories.TRAJECTORIES, finished, tmp_path)[ACCURACY]
    assert len(table) == 2 * 2 * len(plane.TEST_STEPS)
    header = (tmp_path / "table.csv").read_text().splitlines()[0]
    assert header == "run,seed,method,steps,test_method,test_steps,own,accuracy"
    for run in ("fine", "coarse"):
        for index, seed in enumerate((3, 5)):
            (own,) = (row for row in table if row.key == (run, seed) and row.own)
            assert own.test_steps == own.steps == {"fine": 8, "coarse": 2}[run]
            inputs, labels = finished[run].test_set
            with torch.no_grad():
                predicted = finished[run].trained.member(index)(inputs).argmax(dim=1)
            assert own.accuracy == pytest.approx(float((predicted == labels).double().mean()), abs=0.003)


def test_the_trajectories_are_the_steps_of_the_first_member(finished: dict[str, Finished], tmp_path: Path) -> None:
    rows = [row for row in measured(trajectories.TRAJECTORIES, finished, tmp_path)[PATHS] if row.run == "coarse"]
    states, labels = states_of(rows)
    inputs, expected_labels = (part[:60] for part in finished["coarse"].test_set)
    field = ode_blocks(finished["coarse"].trained.member(0))[0].field
    expected = [inputs]
    with torch.no_grad():
        for _ in range(2):
            expected.append(expected[-1] + field(torch.zeros(()), expected[-1]) / 2)
    np.testing.assert_allclose(states, torch.stack(expected).numpy(), rtol=1e-4, atol=1e-5)
    assert labels.tolist() == expected_labels.tolist()
    assert {row.seed for row in rows} == {3}


def test_the_heads_rows_decide_as_the_models_linear_layer(finished: dict[str, Finished], tmp_path: Path) -> None:
    heads = measured(trajectories.TRAJECTORIES, finished, tmp_path)[HEADS]
    points = np.random.default_rng(0).normal(size=(100, 2))
    head = finished["fine"].trained.member(1).get_submodule("2")
    with torch.no_grad():
        expected = head(torch.as_tensor(points, dtype=torch.float32)).argmax(dim=1).numpy()
    rows = [row for row in heads if row.key == ("fine", 5)]
    assert plane.decisions(rows, points).tolist() == expected.tolist()
    frame = Frame(left=-1.0, right=1.0, bottom=-1.0, top=1.0)
    found = plane.regions(rows, frame)
    assert found.predicted[0, 0] == plane.decisions(rows, np.array([-1.0, -1.0]))


def test_figure_1_is_drawn_from_its_csv_files_and_each_claim_is_answered(
    finished: dict[str, Finished], tmp_path: Path
) -> None:
    tables = measured(trajectories.TRAJECTORIES, finished, tmp_path)
    assert_drawn(trajectories.TRAJECTORIES, tables, tmp_path)
    findings = trajectories.TRAJECTORIES.findings(tables)
    assert len(findings) == 4
    assert "over 2 seeds" in findings[0].ours


def test_figure_2_is_drawn_from_its_csv_files_and_its_claim_is_answered(
    finished: dict[str, Finished], tmp_path: Path
) -> None:
    tables = measured(DECISION_REGIONS, finished, tmp_path)
    assert [(row.test_steps, row.own) for row in tables[ACCURACY]] == [(2, True)] * 2 + [(4, False)] * 2
    for count in (2, 4):
        outputs = [row for row in tables[OUTPUTS] if row.test_steps == count]
        right = np.mean([row.label == row.predicted for row in outputs])
        (row,) = (row for row in tables[ACCURACY] if (row.seed, row.test_steps) == (3, count))
        assert len(outputs) == 1000
        assert right == pytest.approx(row.accuracy, abs=0.003)
    assert_drawn(DECISION_REGIONS, tables, tmp_path)
    assert len(DECISION_REGIONS.findings(tables)) == 1


def test_runs_that_are_not_there_yet_leave_claims_unanswered(finished: dict[str, Finished], tmp_path: Path) -> None:
    tables = trajectories.TRAJECTORIES.measure(finished["coarse"])
    assert trajectories.TRAJECTORIES.findings(tables) == []
    assert_drawn(trajectories.TRAJECTORIES, through_csv(tables, tmp_path), tmp_path)
    assert DECISION_REGIONS.findings(Tables()) == []


@pytest.mark.parametrize("study", [trajectories.TRAJECTORIES, DECISION_REGIONS], ids=lambda study: study.name)
def test_seeds_that_were_trained_apart_or_diverged_leave_the_figure_as_it_was(
    study: Study, finished: dict[str, Finished], tmp_path: Path
) -> None:
    """Seeds 3 and 5 have trajectories and outputs of one each, and of seed 1 there is a row that says it diverged."""
    whole, apart = measured(study, finished, tmp_path / "whole"), dict[Table[Any], list[Any]]()
    for name in study.runs(True):
        run = finished[name]
        for s, seed in enumerate(run.trained.config.seeds):
            config, ensemble = replace(run.trained.config, seeds=(seed,)), run.trained.ensemble.subset([s])
            alone = replace(run.trained, config=config, ensemble=ensemble, solvers=run.trained.solvers[s : s + 1])
            for table, rows in study.measure(replace(run, trained=alone)).items():
                apart.setdefault(table, []).extend(rows)
        apart[ACCURACY].insert(0, study.lost(name, run.trained.config, 1, 9))
    tables = through_csv(Tables(apart), tmp_path / "apart")
    figures = [study.draw(t, tmp_path / folder)[0] for folder, t in (("whole", whole), ("apart", tables))]
    assert figures[0].read_bytes() == figures[1].read_bytes()
    assert study.findings(tables) == study.findings(whole)


@pytest.mark.parametrize("study", [trajectories.TRAJECTORIES, DECISION_REGIONS], ids=lambda study: study.name)
def test_a_study_whose_seeds_all_diverged_has_no_figure(study: Study, tmp_path: Path) -> None:
    tables = through_csv(Tables({ACCURACY: [study.lost("coarse", study.runs(True)["coarse"], 1, 9)]}), tmp_path)
    assert (study.draw(tables, tmp_path), study.findings(tables)) == ([], [])


@pytest.mark.parametrize(("drops", "agrees"), [([0.0, 0.05], True), ([0.0, 0.3], None), ([0.2, 0.3], False)])
def test_seeds_that_disagree_do_not_tell(drops: list[float], agrees: bool | None) -> None:
    assert trajectories._all_or_none([drop <= THRESHOLD for drop in drops]) is agrees
