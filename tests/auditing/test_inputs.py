"""Which samples, labels and metrics an audit takes, and which are refused in a sentence."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import windermere as wm
from tests.auditing.rotations import rotating
from tests.auditing.test_known_cases import gap_of, labelled_by_itself, right_of_zero, ring, rotation_verdict
from windermere.auditing import Outcome
from windermere.errors import UsageError
from windermere.paper.data import Split, spheres


def given(kind: str, x: Any, y: Any) -> Any:
    pairs = torch.utils.data.TensorDataset(x, y)
    return {
        "numpy labels": (x, y.numpy()),
        "numpy": (x.numpy(), y.numpy()),
        "numpy in float64": (x.double().numpy(), y.numpy()),
        "a list of labels": (x, y.tolist()),
        "a list of both": [x, y],
        "a split": Split(inputs=x, labels=y),
        "a data set": pairs,
        "two batches": [(x[:150], y[:150]), (x[150:], y[150:])],
        "two batches in a tuple": ((x[:150], y[:150]), (x[150:], y[150:])),
        "a loader": torch.utils.data.DataLoader(pairs, batch_size=64),
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "numpy labels",
        "numpy",
        "numpy in float64",
        "a list of labels",
        "a list of both",
        "a split",
        "a data set",
        "two batches",
        "two batches in a tuple",
        "a loader",
    ],
)
@pytest.mark.parametrize("samples", [None, 1000])
def test_samples_in_any_form_give_the_same_verdict(kind: str, samples: int | None) -> None:
    model = rotating(right_of_zero())
    batches = given(kind, ring(), labelled_by_itself(model, ring()))
    verdict = wm.audit(model, batches, samples=samples, evidence=False)
    assert verdict.gap == rotation_verdict(2).gap


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        (5, "pairs of inputs and labels.* not a int"),
        ([ring(3)] * 3, "pairs of inputs and labels.* not a list of 3"),
        ("sphere2", "pairs of inputs and labels.* not a str"),
        (spheres(2), r"pairs of inputs and labels.* not a DataSet: give its \.test"),
        ([(ring(3), ring(3), torch.zeros(3))], "not a tuple of 3"),
        ([(ring(3)[0], torch.tensor(1))] * 3, "samples along their first axis.* torch Dataset"),
        (([[0.0, 1.0]] * 3, [0, 1, 0]), "must be tensors or arrays"),
        ((ring(3), torch.zeros(2)), "3 inputs but 2 labels, or targets: both have the samples along their first"),
    ],
)
def test_what_holds_no_samples_is_refused_in_a_sentence(batches: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        wm.audit(rotating(right_of_zero()), batches)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda t: t.to("meta"), "is on the device 'meta', where tensors have no values"),
        (lambda t: t.to_sparse(), r"must be a dense tensor, not a sparse_coo one: call \.to_dense\(\) on it"),
        (lambda t: torch.nested.nested_tensor(list(t.reshape(len(t), -1))), "must be a dense tensor, not a nested one"),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_inputs_and_labels_without_values_are_refused_in_a_sentence(changed: Any, words: str) -> None:
    x, y = ring(20), torch.zeros(20, dtype=torch.int64)
    with pytest.raises(UsageError, match=f"an input of a batch {words}"):
        wm.audit(rotating(), (changed(x), y))
    with pytest.raises(UsageError, match=f"the tensor of labels {words}"):
        wm.audit(rotating(), (x, changed(y)))


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


def test_a_metric_in_its_own_units_may_have_a_threshold_above_one() -> None:
    verdict = wm.audit(rotating(), (ring(), ring()), metric=distance_to, threshold=50.0, evidence=False)
    assert verdict.outcome is Outcome.FLOW


def test_targets_of_a_regression_without_a_metric_are_refused() -> None:
    with pytest.raises(UsageError, match="take metric='mse'"):
        wm.audit(rotating(), (ring(), ring()))
    with pytest.raises(UsageError, match=r"whole numbers.* there is a 0.37: for a regression take metric='mse'"):
        wm.audit(rotating(nn.Linear(2, 1)), (ring(), torch.full((400,), 0.37)))


@pytest.mark.parametrize(
    ("outputs", "changed", "words"),
    [
        (1, lambda y: 2 * y - 1, r"labels go from -1 to 1, but a single output, .* 0 and 1: .*\(labels \+ 1\) / 2"),
        (2, lambda y: y + 1, r"labels go from 1 to 2, but 2 outputs are the classes 0 to 1: subtract 1"),
        (2, lambda y: y + 5, r"subtract 5"),
        (2, lambda y: 7 * y, r"number the classes from 0"),
        (2, lambda y: torch.where(y > 0, torch.nan, 0.0), r"\d+ of 400 labels are not finite"),
        (2, lambda y: np.array(["cat", "dog"])[y.numpy()], r"'(cat|dog)'.*: number the classes from 0"),
    ],
)
def test_labels_that_are_not_the_numbers_of_the_outputs_are_refused(outputs: int, changed: Any, words: str) -> None:
    labels = labelled_by_itself(rotating(right_of_zero()), ring())
    with pytest.raises(UsageError, match=words):
        wm.audit(rotating(nn.Linear(2, outputs)), (ring(), changed(labels)))


def test_whole_numbers_of_any_dtype_are_the_same_classes() -> None:
    model = rotating(right_of_zero())
    labels = labelled_by_itself(model, ring())
    same = [labels, labels.float(), labels.bool(), labels[:, None], labels.numpy().astype(np.uint8)]
    assert len({wm.audit(model, (ring(), each), evidence=False).gap for each in same}) == 1


def distance_to(outputs: Any, targets: Any) -> Any:
    return (outputs - targets).norm(dim=1)


def test_a_metric_without_a_threshold_in_its_units_is_refused() -> None:
    with pytest.raises(UsageError, match=r"units of its own: say by threshold=.* take metric='mse'"):
        wm.audit(rotating(), (ring(), ring()), metric=distance_to)


def test_a_regression_on_a_small_scale_is_tied_if_its_threshold_is_on_that_scale() -> None:
    model = rotating()
    with torch.no_grad():
        batch = 0.001 * ring(), model(0.001 * ring())
    small, large = (wm.audit(model, batch, metric=distance_to, threshold=t, evidence=False) for t in (1e-4, 0.1))
    assert (small.outcome, large.outcome) == (Outcome.TIED, Outcome.FLOW)


def test_a_metric_may_read_labels_that_are_text() -> None:
    def named(outputs: Any, labels: Any) -> Any:
        return np.array(["left", "right"])[outputs.argmax(dim=1)] == labels

    model = rotating(right_of_zero())
    labels = np.array(["left", "right"])[labelled_by_itself(model, ring())]
    verdict = wm.audit(model, (ring(), labels), metric=named, threshold=0.1)
    assert verdict.gap == replace(gap_of(rotation_verdict(2)), better=None)


def test_single_logits_are_decided_by_their_sign_and_probabilities_are_refused() -> None:
    line = nn.Linear(2, 1, bias=False)
    nn.init.ones_(line.weight)  # a small random one might give outputs like probabilities by itself
    labels = (ring() @ line.weight.detach().T > 0).numpy()[:, 0]
    assert wm.audit(rotating(line), (ring(), labels)).own.metric is not None
    with pytest.raises(UsageError, match="leave out the sigmoid"):
        wm.audit(rotating(line, nn.Sigmoid()), (ring(), labels))


class Chosen(nn.Module):
    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.argmax(dim=1)


def test_classes_instead_of_their_scores_are_told_from_logits() -> None:
    with pytest.raises(UsageError, match=r"labels go from 0 to 2.* like classes: return the scores .* before argmax"):
        wm.audit(rotating(nn.Linear(2, 3), Chosen()), (ring(), torch.arange(400) % 3))


def test_batches_of_three_are_refused_with_the_way_to_give_several_inputs() -> None:
    with pytest.raises(UsageError, match=r"not a tuple of 3: several inputs are a tuple, as in \(\(x, t\), labels\)"):
        wm.audit(rotating(), [(ring(), ring(), torch.zeros(400))])


def test_three_tensors_alone_are_told_how_they_are_batches() -> None:
    with pytest.raises(UsageError, match=r"not a list of 3: batches of inputs alone are \[\(x,\), \(x,\)\]"):
        wm.audit(rotating(), [ring(), ring(), ring()])


class Squeezed(nn.Module):
    """As it is often written, so that a batch of one has no axis left."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return z.squeeze()


def test_no_single_sample_is_left_over_where_all_are_taken() -> None:
    x = ring(1001)
    verdict = wm.audit(rotating(nn.Linear(2, 1), Squeezed()), (x, x[:, 0] > 0), samples=None, evidence=False)
    assert verdict.samples == 1001
