"""What may be given to an audit, and what is refused in a sentence."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import windermere as wm
from tests.auditing.test_known_cases import Rotation, labelled_by_itself, right_of_zero, ring, rotation_verdict
from windermere.auditing import Candidate, Outcome
from windermere.errors import AuditError, UsageError
from windermere.paper.data import Split, spheres

OWN = wm.FixedStep.of("euler", steps=4)


def rotating(*head: nn.Module) -> nn.Sequential:
    return nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=2)), *head)


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
        (ring(3), "pairs of inputs and labels.* not a Tensor"),
        ({"x": ring(3), "y": torch.zeros(3)}, "pairs of inputs and labels.* not a dict"),
        ("sphere2", "pairs of inputs and labels.* not a str"),
        (spheres(2), r"pairs of inputs and labels.* not a DataSet: give its \.test"),
        ([(ring(3), ring(3), torch.zeros(3))], "not a tuple of 3"),
        ([(ring(3)[0], torch.tensor(1))] * 3, "samples along their first axis.* torch Dataset"),
        (([[0.0, 1.0]] * 3, [0, 1, 0]), "must be tensors or arrays"),
        ((ring(3), torch.zeros(2)), "3 inputs but 2 labels"),
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


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"samples": 0}, "at least one sample"),
        ({"samples": -5}, "at least one sample"),
        ({"samples": 2.5}, "at least one sample, a whole number of them, not 2.5"),
        ({"samples": True}, "at least one sample, a whole number of them, not True"),
        ({"threshold": -1}, "threshold must be a number of at least 0, not -1"),
        ({"threshold": "low"}, "threshold must be a number of at least 0, not low"),
        ({"threshold": "0.1"}, "threshold must be a number of at least 0, not 0.1"),
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


def test_a_metric_in_its_own_units_may_have_a_threshold_above_one() -> None:
    verdict = wm.audit(rotating(), (ring(), ring()), metric=distance_to, threshold=50.0, evidence=False)
    assert verdict.outcome is Outcome.FLOW


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan"), None])
def test_a_candidate_is_a_known_method_and_a_positive_factor(factor: float) -> None:
    with pytest.raises(UsageError, match="factor must be positive and finite"):
        Candidate("euler", factor)
    with pytest.raises(UsageError, match="no method 'eular': did you mean 'euler'"):
        Candidate("eular", 1.0)


def test_targets_of_a_regression_without_a_metric_are_refused() -> None:
    with pytest.raises(UsageError, match="give metric="):
        wm.audit(rotating(), (ring(), ring()))
    with pytest.raises(UsageError, match=r"whole numbers.* there is a 0.37: for a regression .* give metric="):
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
    with pytest.raises(UsageError, match=r"units of its own: say by threshold=.* log10 of each .* error, .* 0\.3"):
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
    assert verdict.gap == rotation_verdict(2).gap


def test_single_logits_are_decided_by_their_sign_and_probabilities_are_refused() -> None:
    line = nn.Linear(2, 1, bias=False)
    nn.init.ones_(line.weight)  # a small random one might give outputs like probabilities by itself
    labels = (ring() @ line.weight.detach().T > 0).numpy()[:, 0]
    assert wm.audit(rotating(line), (ring(), labels)).own.metric is not None
    with pytest.raises(UsageError, match="leave out the sigmoid"):
        wm.audit(rotating(line, nn.Sigmoid()), (ring(), labels))


def test_grids_that_come_out_the_same_stand_in_the_table_once() -> None:
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.OnGrid("euler", (0.0, 1.0))), right_of_zero())
    verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())), evidence=False)
    solvers = [line.solver for line in verdict.table]
    assert len(solvers) == len(set(solvers))


class Breathing(nn.Module):
    """Its rate is the same at both ends and in the middle of (0, 1)."""

    def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return z * torch.sin(2 * torch.pi * t)


def test_a_field_with_a_period_of_half_the_span_is_not_taken_for_autonomous() -> None:
    x, y = ring(20), torch.arange(20) % 2
    model = nn.Sequential(wm.ODEBlock(Breathing(), wm.FixedStep.of("euler", steps=4)), nn.Linear(2, 2))
    (crossings,) = (e for e in wm.audit(model, (x, y)).evidence if e.name == "crossings")
    assert "depends on t" in crossings.finding


def test_a_solver_of_training_beside_a_models_own_is_refused() -> None:
    x, y = ring(20), torch.arange(20) % 2
    with pytest.raises(UsageError, match="a model with ODEBlocks has its own solvers"):
        wm.audit(rotating(), (x, y), trained_with=wm.FixedStep.of("rk4", steps=8))


def test_an_output_that_is_not_each_samples_is_refused_by_its_shape() -> None:
    class Halved(nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return z[: len(z) // 2]

    words = r"outputs of shape \(8, 2\) for 16 samples and \(4, 2\) for 8: wrap it .* batch_axis="
    with pytest.raises(AuditError, match=words):
        wm.audit(rotating(Halved()), (ring(20), torch.arange(20) % 2))


@pytest.mark.parametrize(("outputs", "words"), [(None, r"shape \(\) for 16"), ({}, "a dict that is no array")])
def test_a_predict_that_returns_no_outputs_is_refused(outputs: Any, words: str) -> None:
    with pytest.raises(AuditError, match=words):
        wm.audit(lambda x, solver: outputs, (ring(20), torch.arange(20) % 2), trained_with=OWN)


def test_a_predict_that_passes_its_solver_over_is_no_flow() -> None:
    verdict = wm.audit(lambda x, solver: x, (ring(), torch.zeros(400)), trained_with=OWN)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "the same outputs whatever the solver" in verdict.sentence


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": "accuracy", "threshold": 0.1}, "a metric is a function of outputs and targets, not 'accuracy'"),
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


class Conditioned(nn.Module):
    """The field is told each sample's own input, as models with a context do it."""

    def __init__(self) -> None:
        super().__init__()
        self.block = wm.ODEBlock(Scaled(), wm.FixedStep.of("euler", steps=4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.block.field.context = x[:, :1]
        return self.block(x)


class Scaled(nn.Module):
    context: torch.Tensor

    def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return z * self.context


def test_a_field_that_holds_a_context_for_each_sample_is_audited_without_evidence() -> None:
    verdict = wm.audit(Conditioned(), (ring(), torch.zeros(400)))
    assert verdict.outcome is Outcome.FLOW
    assert verdict.evidence == ()


class OnAGraph(nn.Module):
    """Nodes that look at their neighbours: one sample each, and none alone."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.neighbours = torch.eye(nodes).roll(1, dims=0)

    def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        if len(z) < len(self.neighbours):
            raise ValueError
        return self.neighbours.to(z) @ z


def test_samples_that_are_only_to_be_had_together_are_refused() -> None:
    with pytest.raises(AuditError, match=r"takes 20 samples together, but not 16 or 8 of them.* depend on each other"):
        wm.audit(nn.Sequential(wm.ODEBlock(OnAGraph(20), OWN)), (ring(20), torch.arange(20) % 2))


def test_an_audit_in_inference_mode_is_the_same() -> None:
    model, batch = rotating(), (ring(20), torch.arange(20) % 2)
    with torch.inference_mode():
        verdict = wm.audit(model, batch)
    assert verdict.to_dict() == wm.audit(model, batch).to_dict()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_nobody_wants_gradients_predict_is_asked_for_none(mode: Any) -> None:
    network = nn.Linear(2, 2)

    def predict(x: torch.Tensor, solver: Any) -> Any:
        assert not torch.is_grad_enabled()
        return wm.solve(lambda t, z: network(z), x, solver).final

    with mode():
        assert wm.audit(predict, (2 * ring(20), torch.zeros(20)), trained_with=OWN).samples == 20
