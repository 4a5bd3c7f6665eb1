"""Models of diffrax with several inputs, shared or named, and with many outputs."""

from typing import Any

import numpy as np
import pytest

import windermere as wm
from tests.auditing.adapters.diffrax_models import Model, Series, X, eqx, fixed, func, jax, jnp, make
from tests.auditing.adapters.models import points
from windermere.auditing import Candidate
from windermere.auditing.adapters.diffrax import DiffraxSubject
from windermere.errors import AuditError, UsageError
from windermere.nn.shared import share
from windermere.solvers import FixedStep

pytestmark = pytest.mark.usefixtures("quick_jax")


def test_backwards_and_with_many_outputs_as_the_example_of_a_neural_ode_has_it() -> None:
    model, ts = Series(func()), jnp.linspace(2.0, 0.0, 5)
    subject = DiffraxSubject(model, X, call=lambda model, x: jax.vmap(model, in_axes=(None, 0))(ts, x))
    own, fine = subject.forward(X, None), subject.forward(X, lambda own: FixedStep("rk4", step=0.01))
    assert own.outputs.shape == (4, 5, 2)
    assert (own.outputs - fine.outputs).abs().max() < 1e-2


class OfBatches(eqx.Module):  # type: ignore[misc, unused-ignore]
    """A model that maps over its batch by itself."""

    one: Any

    def __call__(self, x: Any) -> Any:
        return jax.vmap(self.one)(x)


def test_a_model_of_whole_batches_is_told_how_to_come_in_and_comes_in_so() -> None:
    one = make(fixed("Euler", 0.25))
    with pytest.raises(AuditError, match=r"this OfBatches could not be called for one sample.* call=lambda"):
        wm.audit(OfBatches(one), (X, np.zeros(len(X))))
    subject = DiffraxSubject(OfBatches(one), X, call=lambda model, x: model(x))
    np.testing.assert_allclose(subject.forward(X, None).outputs, DiffraxSubject(one, X).forward(X, None).outputs)


def test_a_mapped_module_is_told_to_come_as_itself() -> None:
    with pytest.raises(AuditError, match=r"diffrax's equinox module itself \(not jax.vmap of it\)"):
        wm.audit(jax.vmap(make(fixed("Euler", 0.25))), (X, np.zeros(len(X))))


def judged(model: Any, batch: Any, shared: Any) -> wm.Verdict:
    def mean_square(outputs: Any, targets: Any) -> Any:
        return (outputs - targets).square().flatten(1).mean(dim=1)

    few = [Candidate("dopri54", 1.0)]
    return wm.audit(model, batch, shared=shared, metric=mean_square, threshold=1.0, candidates=few)


@pytest.mark.parametrize(("times", "shared"), [pytest.param(10, ("ts",), marks=pytest.mark.thorough), (24, (0,))])
def test_times_that_all_samples_share_are_not_mapped(times: int, shared: Any) -> None:
    model, ts, x = Series(func()), np.linspace(0.0, 1.0, times), points(24)
    given = share((ts, x), shared, model)
    expected = jax.vmap(model, in_axes=(None, 0))(jnp.asarray(ts, float), jnp.asarray(x.numpy()))
    np.testing.assert_allclose(DiffraxSubject(model, given).forward(given, None).outputs, expected, atol=1e-6)


def test_a_model_of_times_and_a_start_is_audited_where_there_are_as_many_times_as_samples() -> None:
    model, ts, x = Series(func()), np.linspace(0.0, 1.0, 24), points(24)
    targets = np.asarray(jax.vmap(model, in_axes=(None, 0))(jnp.asarray(ts, float), jnp.asarray(x.numpy())))
    verdict = judged(model, ((ts, x), targets), ("ts",))
    assert verdict.own.metric == pytest.approx(0, abs=1e-10)
    assert verdict.outcome == "FLOW"
    assert verdict.reference.dtype == "float64"


def test_times_that_were_not_named_are_told_how_to_be_shared() -> None:
    model, x = Series(func()), points(24)
    with pytest.raises(UsageError, match=r"the input 0 of a batch has 10 entries .* 24 labels: .*shared=\(0,\)"):
        wm.audit(model, ((np.linspace(0, 1, 10), x), np.zeros(24)))
    with pytest.raises(AuditError, match=r"could not be called for one sample .* name it, as shared=\(0,\)"):
        wm.audit(model, ((np.linspace(0, 1, 24), x), np.zeros(24)))


def test_inputs_by_name_and_numbers_come_as_they_are() -> None:
    class Scaled(Model):
        def __call__(self, y0: Any, scale: Any, mode: str) -> Any:  # type: ignore[override]
            assert mode == "plain"
            return super().__call__(scale * y0)

    how = fixed("Euler", 0.25)
    plain = make(how)
    model = Scaled(plain.func, plain.how, plain.called)
    subject = DiffraxSubject(model, {"y0": X, "scale": 2.0, "mode": "plain"})
    given = subject.forward({"mode": "plain", "scale": 2.0, "y0": X}, None)
    np.testing.assert_allclose(given.outputs, DiffraxSubject(plain, 2 * X).forward(2 * X, None).outputs)


def test_a_call_of_whole_batches_gets_what_is_shared_unmarked_and_may_return_times_first() -> None:
    ts, x = np.linspace(0.0, 1.0, 24), points(24)
    seen: list[Any] = []

    def call(model: Any, given: Any) -> Any:
        seen.append(given[0].shape)
        return jax.vmap(model, in_axes=(None, 0), out_axes=1)(*given)

    subject = DiffraxSubject(Series(func()), (ts, x), call=call)
    targets = call(subject.model, (jnp.asarray(ts, float), jnp.asarray(x.numpy()))).transpose(1, 0, 2)
    verdict = judged(subject, ((ts, x), np.asarray(targets)), (0,))
    assert verdict.own.metric == pytest.approx(0, abs=1e-10)
    assert set(seen) == {(24,)}
