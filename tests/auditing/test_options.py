"""Which options an audit takes, and which are refused in a sentence."""

from typing import Any

import pytest
import torch
from torch import nn

import windermere as wm
from tests.auditing.rotations import rotating
from tests.auditing.test_known_cases import Rotation, labelled_by_itself, right_of_zero, ring, rotation_verdict
from windermere.auditing import Candidate
from windermere.errors import UsageError


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"samples": 0}, "at least one sample"),
        ({"samples": -5}, "at least one sample"),
        ({"samples": 2.5}, "at least one sample, a whole number of them, not 2.5"),
        ({"samples": True}, "at least one sample, a whole number of them, not True"),
        ({"threshold": -1}, "threshold must be a number of at least 0, not -1"),
        ({"threshold": "low"}, "threshold must be a number of at least 0, not 'low'"),
        ({"threshold": "0.1"}, "threshold must be a number of at least 0, not '0.1'"),
        ({"threshold": 10**400}, "threshold must be a number of at least 0"),
        ({"threshold": torch.ones(2)}, "threshold must be a number of at least 0"),
        ({"threshold": 1.0}, "threshold of 1.0 calls any model a flow: give one below 1"),
        ({"agreement": 99}, "a share of the predictions, above 0 and at most 1, not 99: give 0.99 for 99%"),
        ({"agreement": "0.9"}, "above 0 and at most 1, not 0.9"),
        ({"agreement": 0}, "above 0 and at most 1, not 0"),
        ({"agreement": float("nan")}, "above 0 and at most 1, not nan"),
        ({"budget": 0}, "how many evaluations the reference flow may take.* at least 1, not 0: leave it out"),
        ({"budget": -3}, "at least 1, not -3"),
        ({"budget": 1e4}, "a whole number, at least 1, not 10000.0"),
        ({"seed": -1}, "seed must be a whole number, at least 0, not -1"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        rotation_verdict(2, **how)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan"), None])
def test_a_candidate_is_a_known_method_and_a_positive_factor(factor: float) -> None:
    with pytest.raises(UsageError, match="factor must be positive and finite"):
        Candidate("euler", factor)
    with pytest.raises(UsageError, match="no method 'eular': did you mean 'euler'"):
        Candidate("eular", 1.0)


def test_grids_that_come_out_the_same_stand_in_the_table_once() -> None:
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.OnGrid("euler", (0.0, 1.0))), right_of_zero())
    verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())), evidence=False)
    solvers = [line.solver for line in verdict.table]
    assert len(solvers) == len(set(solvers))


def test_a_solver_of_training_beside_a_models_own_is_refused() -> None:
    x, y = ring(20), torch.arange(20) % 2
    with pytest.raises(UsageError, match="a model with ODEBlocks has its own solvers"):
        wm.audit(rotating(), (x, y), trained_with=wm.FixedStep.of("rk4", steps=8))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"metric": "acuracy"},
            "there is no metric 'acuracy': there are accuracy, rmse, mse, mae, r2, nll, energy-drift",
        ),
        ({"metric": 5}, "a metric is a function of outputs and targets, a wm.Metric or a name, not 5"),
        ({"metric": "energy-drift"}, "energy-drift needs the energy: give metric=wm.energy_drift"),
        ({"metric": "mse", "threshold": 0.5}, "a number above 1, such as 1.5, not 0.5"),
        ({"metric": "mse"}, "one target for each output, but outputs have shape .20, 2. and targets .20,."),
        ({"metric": "nll"}, "nll takes the model's outputs for log-densities, one for each sample, but"),
        ({"outputs": "logits"}, 'outputs is "classes" or "numbers", not \'logits\''),
        ({"outputs": "numbers"}, "compared with targets by a metric: give one, such as metric='mse'"),
        ({"candidates": ["rk4"]}, r"a candidate is a windermere.Candidate\(method, factor\), not 'rk4'"),
        ({"metric": lambda z, y: z[:, 0] / 0, "threshold": 0.1}, "scores are not finite for 20 of 20 samples"),
    ],
)
def test_options_of_the_wrong_kind_are_refused_in_a_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        wm.audit(rotating(), (ring(20), torch.arange(20) % 2), **options)


def test_candidates_may_come_one_by_one() -> None:
    given = [Candidate("rk4", 1.0), Candidate("midpoint", 0.3)]
    batch = ring(20), torch.arange(20) % 2
    several, passing = (wm.audit(rotating(), batch, candidates=some) for some in (given, iter(given)))
    assert passing.to_dict() == several.to_dict()
    alone: Any = given[1]
    assert "midpoint" in [line.method for line in wm.audit(rotating(), batch, candidates=alone).table]


def test_a_name_is_no_solver_of_training() -> None:
    with pytest.raises(UsageError, match=r"a solver is a FixedStep, an OnGrid or an Adaptive.* not 'euler'"):
        wm.audit(lambda x, solver: x, (ring(20), torch.arange(20) % 2), trained_with="euler")  # type: ignore[arg-type]
