"""What may be given to an audit, and what is refused in a sentence."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import windermere as wm
from tests.audit.test_known_cases import Rotation, labelled_by_itself, right_of_zero, ring, rotation_verdict
from windermere.audit import Outcome
from windermere.errors import UsageError


def rotating(*head: nn.Module) -> nn.Sequential:
    return nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=2)), *head)


def given(kind: str, x: Any, y: Any) -> Any:
    pairs = torch.utils.data.TensorDataset(x, y)
    return {
        "numpy labels": (x, y.numpy()),
        "numpy": (x.numpy(), y.numpy()),
        "numpy in float64": (x.double().numpy(), y.numpy()),
        "a list of labels": (x, y.tolist()),
        "a loader": torch.utils.data.DataLoader(pairs, batch_size=64),
    }[kind]


@pytest.mark.parametrize("kind", ["numpy labels", "numpy", "numpy in float64", "a list of labels", "a loader"])
@pytest.mark.parametrize("samples", [None, 1000])
def test_samples_in_any_form_give_the_same_verdict(kind: str, samples: int | None) -> None:
    model = rotating(right_of_zero())
    batches = given(kind, ring(), labelled_by_itself(model, ring()))
    verdict = wm.audit(model, batches, samples=samples, evidence=False)
    assert verdict.gap == rotation_verdict(2).gap


def test_the_same_seed_draws_the_same_samples_whatever_the_batches() -> None:
    model = rotating(right_of_zero())
    x, y = ring(), labelled_by_itself(model, ring())
    by_batches = [(x[i : i + 32], y[i : i + 32]) for i in range(0, 400, 32)]
    one, two, other = (
        wm.audit(model, b, samples=90, seed=s, evidence=False) for b, s in (((x, y), 3), (by_batches, 3), ((x, y), 4))
    )
    assert one.to_dict() == two.to_dict()
    assert one.own.error != other.own.error


@pytest.mark.parametrize("samples", [1, 2])
def test_one_or_two_samples_decide_nothing(samples: int) -> None:
    verdict = rotation_verdict(256, samples=samples)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "more samples" in verdict.sentence


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"samples": 0}, "at least one sample"),
        ({"samples": -5}, "at least one sample"),
        ({"threshold": -1}, "threshold"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        rotation_verdict(2, **how)


def test_targets_of_a_regression_without_a_metric_are_refused() -> None:
    with pytest.raises(UsageError, match="give metric="):
        wm.audit(rotating(), (ring(), ring()))


def test_single_logits_are_decided_by_their_sign_and_probabilities_are_refused() -> None:
    line = nn.Linear(2, 1)
    labels = (ring() @ line.weight.detach().T > 0).numpy()[:, 0]
    assert np.isfinite(wm.audit(rotating(line), (ring(), labels)).own.metric)
    with pytest.raises(UsageError, match="leave out the sigmoid"):
        wm.audit(rotating(line, nn.Sigmoid()), (ring(), labels))


def test_grids_that_come_out_the_same_stand_in_the_table_once() -> None:
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.OnGrid("euler", (0.0, 1.0))), right_of_zero())
    verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())), evidence=False)
    solvers = [line.solver for line in verdict.table]
    assert len(solvers) == len(set(solvers))
