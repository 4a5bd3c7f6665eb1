"""Inputs that all samples share are given to the model whole, and those that are cut by mistake are named."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint

import windermere as wm
from tests.auditing.test_axes import Swing, swings
from windermere.auditing import Outcome
from windermere.errors import AuditError, UsageError
from windermere.solvers import Solver

OWN = wm.FixedStep("rk4", step=1 / 16)


class Timed(nn.Module):
    """A series of states at the times that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.field = Swing()

    def forward(self, x: Tensor, t: Tensor) -> Any:
        return odeint(self.field, x, t, method="rk4", options={"step_size": 1 / 16})


class Ended(Timed):
    def forward(self, x: Tensor, t: Tensor) -> Any:
        return super().forward(x, t)[-1]


class Packed(Timed):
    """All inputs in one argument."""

    def forward(self, given: Any) -> Any:  # type: ignore[override]
        x, t = given.values() if isinstance(given, dict) else given
        return super().forward(x, t)[-1]


class Told(nn.Module):
    """A block, and numbers beside the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.block = wm.ODEBlock(Swing(), OWN)

    def forward(self, x: Tensor, scale: Any, mode: Any, offset: Any = None) -> Any:
        assert mode == "plain"
        assert offset is None
        return self.block(scale * x)


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().flatten(1).mean(dim=1)


def own_score(verdict: wm.Verdict) -> float:
    assert verdict.own.metric is not None
    return verdict.own.metric


def judged(model: Any, batches: Any, **how: Any) -> wm.Verdict:
    return wm.audit(model, batches, metric=squares, threshold=10.0, evidence=False, **how)


def by_hand(x: Tensor, t: Tensor) -> Tensor:
    with torch.no_grad():
        return Timed()(x, t).movedim(1, 0)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("times", "shared"),
    [(10, ("t",)), (16, (1,)), (100, "t"), (40, 1), (100, ["t"]), (10, (np.int64(1),)), (16, ("t", 1))],
)
def test_shared_times_named_or_by_position_give_the_error_computed_by_hand(times: int, shared: Any) -> None:
    x, t = swings(40), torch.linspace(0, 2, times)
    targets = by_hand(x, t) + 0.06
    verdict = judged(Timed(), ((x, t), targets), shared=shared)
    assert verdict.own.metric == pytest.approx(0.0036, rel=1e-4)
    assert verdict.outcome is Outcome.FLOW


@pytest.mark.parametrize("times", [10, 16, 100, 40])
def test_shared_times_of_a_dict_are_named_by_their_key(times: int) -> None:
    x, t = swings(40), torch.linspace(0, 2, times)
    verdict = judged(Ended(), ({"t": t, "x": x}, by_hand(x, t)[:, -1]), shared=("t",))
    assert verdict.own.metric == 0


@pytest.mark.parametrize(("shared", "names"), [(("t",), ("x", "t")), ((1,), None)])
def test_inputs_in_one_argument_are_shared_by_key_or_position(shared: Any, names: Any) -> None:
    x, t = swings(40), torch.linspace(0, 2, 10)
    inputs = (x, t) if names is None else dict(zip(names, (x, t), strict=True))
    assert judged(Packed(), (inputs, by_hand(x, t)[:, -1]), shared=shared).own.metric == 0


def test_a_predict_gets_what_is_shared_whole_and_by_position() -> None:
    def predict(given: tuple[Tensor, Tensor], solver: Solver) -> Any:
        x, t = given
        assert len(t) == 10
        return wm.solve(Swing(), x, solver, t.tolist()).states.movedim(1, 0)

    x, t = swings(40), torch.linspace(0, 2, 10)
    verdict = judged(predict, ((x, t), by_hand(x, t)), shared=(1,), trained_with=OWN)
    assert own_score(verdict) < 1e-5  # torchdiffeq draws straight lines between steps
    with pytest.raises(UsageError, match="there is no input 't' that could be shared: the inputs are 0, 1"):
        judged(predict, ((x, t), by_hand(x, t)), shared=("t",), trained_with=OWN)


@pytest.mark.parametrize("scale", [2, 2.0, torch.tensor(2.0), np.float32(2.0)])
def test_numbers_texts_and_none_are_shared_without_being_named(scale: Any) -> None:
    x = swings(40)
    with torch.no_grad():
        targets = Told()(x, 2.0, "plain")
    given = [((x[:30], scale, "plain", None), targets[:30]), ((x[30:], scale, "plain", None), targets[30:])]
    assert judged(Told(), given).own.metric == pytest.approx(0, abs=1e-12)
    first = [((2.0, x), targets)]
    assert judged(FirstScaled(), first).own.metric == pytest.approx(0, abs=1e-12)


class FirstScaled(Told):
    def forward(self, scale: Any, x: Tensor) -> Any:  # type: ignore[override]
        return self.block(scale * x)


@pytest.mark.parametrize("times", [10, 16, 100])
def test_an_input_with_another_length_than_the_labels_is_named_and_how_to_share_it(times: int) -> None:
    x, t = swings(40), torch.linspace(0, 2, times)
    words = rf"the input 1 of a batch has {times} entries .* 40 labels: if all samples share it, give shared=\(1,\)"
    with pytest.raises(UsageError, match=words):
        judged(Timed(), ((x, t), by_hand(x, t)))
    with pytest.raises(UsageError, match=r"the input 't' of .* give shared=\('t',\)"):
        judged(Timed(), ({"x": x, "t": t}, by_hand(x, t)), samples=None)
    with pytest.raises(UsageError, match="a batch has 40 inputs but 39 labels"):
        judged(Timed(), ((x, x), torch.zeros(39)))


def test_shared_times_that_are_as_many_as_samples_are_told_apart_from_batch_statistics() -> None:
    x, t = swings(40), torch.linspace(0, 2, 40)
    with pytest.raises(AuditError, match=r"the axes 0 and 1 grow .* batch_axis=.*; or .* such as shared=\(1,\)"):
        judged(Timed(), ((x, t), by_hand(x, t)))
    verdict = judged(Ended(), ((x, t), by_hand(x, t)[:, -1]))
    assert verdict.outcome is Outcome.UNDECIDED
    assert "if all samples share it, give shared=(1,)" in verdict.sentence
    assert "batch statistics" not in verdict.sentence


def test_shared_times_that_fewer_samples_cut_too_short_are_told_of() -> None:
    class Late(Timed):
        def forward(self, x: Tensor, t: Tensor) -> Any:
            return super().forward(x, t[[0, 30]])[-1]

    x, t = swings(40), torch.linspace(0, 2, 40)
    with pytest.raises(AuditError, match=r"takes 40 samples .* not 16 or 8 .*IndexError.*such as shared=\(1,\)"):
        judged(Late(), ((x, t), x))


def test_batch_statistics_beside_a_second_input_are_still_found() -> None:
    class Centred(Told):
        def forward(self, x: Tensor, shift: Tensor) -> Any:  # type: ignore[override]
            return self.block(x - x.mean(dim=0) + shift)

    verdict = judged(Centred(), ((swings(40), torch.ones(40, 2)), swings(40)))
    assert "there are batch statistics in the model" in verdict.sentence


def test_a_second_input_of_each_sample_stays_so() -> None:
    class Paced(Told):
        def forward(self, x: Tensor, pace: Tensor) -> Any:  # type: ignore[override]
            return self.block(x * pace[:, None])

    x, pace = swings(40), torch.linspace(1, 2, 40)
    with torch.no_grad():
        targets = Paced()(x, pace)
    assert own_score(judged(Paced(), ((x, pace), targets), samples=25)) < 1e-12


def test_batches_share_one_input_or_are_taken_one_by_one() -> None:
    x, t = swings(40), torch.linspace(0, 2, 10)
    targets = by_hand(x, t)[:, -1]
    same = [((x[:25], t), targets[:25]), ((x[25:], t.clone()), targets[25:])]
    assert own_score(judged(Ended(), same, shared=("t",), samples=30)) < 1e-12
    longer = torch.linspace(0, 3, 12)
    other = [same[0], ((x[25:], longer), by_hand(x, longer)[25:, -1])]
    with pytest.raises(UsageError, match=r"all samples share differs between batches.*: give samples=None"):
        judged(Ended(), other, shared=("t",))
    verdict = judged(Ended(), other, shared=("t",), samples=None)
    assert (verdict.samples, verdict.own.metric) == (40, 0)


@pytest.mark.parametrize(
    ("shared", "words"),
    [
        (("s",), r"there is no input 's' that could be shared: the inputs are 0, 1, 'x', 't'"),
        ((2,), r"there is no input 2 that could be shared"),
        (("x", "t"), "names all of the inputs"),
        ((-1,), r"by their names or positions from 0, .* not \(-1,\)"),
        ((True,), "by their names or positions"),
        (1.5, "by their names or positions"),
        (None, "by their names or positions"),
    ],
)
def test_what_cannot_be_shared_is_refused_in_a_sentence(shared: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        judged(Timed(), ((swings(40), torch.linspace(0, 2, 10)), torch.zeros(40)), shared=shared)


def test_one_input_alone_or_those_of_a_data_set_cannot_be_shared() -> None:
    with pytest.raises(UsageError, match="there is only one: leave it out"):
        judged(Timed(), (swings(40), torch.zeros(40)), shared=(0,))
    with pytest.raises(UsageError, match=r"a Dataset gives each sample inputs of its own.*leave shared=\.\.\. out"):
        judged(Timed(), torch.utils.data.TensorDataset(swings(40), torch.zeros(40)), shared=("t",))


def test_what_is_shared_inside_of_an_input_that_is_not_is_to_be_one_of_its_own() -> None:
    x, labels = torch.zeros(12, 2), torch.zeros(12, dtype=torch.int64)
    words = "an array inside of the input 'seen' of a batch has 5 entries .* make it an input of its own"
    with pytest.raises(UsageError, match=words):
        wm.audit(nn.Linear(2, 2), ({"seen": {"x": x, "t": torch.zeros(5)}}, labels))
