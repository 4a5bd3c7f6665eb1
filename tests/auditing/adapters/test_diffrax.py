"""Models written the way diffrax's examples write them. Needs diffrax, which no dependency of ours brings."""

import gc
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Event
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch

import windermere as wm
from tests.auditing.adapters.models import points
from tests.threads import run_together
from windermere.auditing import Candidate
from windermere.errors import AuditError, DoublePrecisionError, SolverError, UsageError
from windermere.nn.shared import share
from windermere.solvers import METHODS, Adaptive, FixedStep, OnGrid, Solver, adaptive_names, solve
from windermere.solvers.landing import landing

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    diffrax = pytest.importorskip("diffrax")
    import equinox as eqx  # type: ignore[import-not-found, unused-ignore]
    import jax  # type: ignore[import-not-found, unused-ignore]
    import jax.numpy as jnp  # type: ignore[import-not-found, unused-ignore]

from windermere.auditing.adapters.diffrax import DiffraxSubject, diffrax_solver
from windermere.auditing.adapters.diffrax_solves import Solve

imported_early = diffrax.diffeqsolve
X = points(4)


@pytest.fixture(autouse=True)
def _its_call_is_restored() -> Iterator[None]:
    before = type(diffrax.diffeqsolve).__call__
    yield
    assert type(diffrax.diffeqsolve).__call__ is before


class Func(eqx.Module):  # type: ignore[misc, unused-ignore]
    """The example's vector field. A module, not a closure: diffrax compiles anew for each closure."""

    mlp: Any

    def __call__(self, t: Any, y: Any, args: Any) -> Any:
        return jnp.sin(t) + self.mlp(y)


class Model(eqx.Module):  # type: ignore[misc, unused-ignore]
    """For one sample; its solve is asked for as `how` says."""

    func: Func
    how: Any = eqx.field(static=True)
    called: Any = eqx.field(static=True)

    def __call__(self, y0: Any) -> Any:
        return self.called(diffrax.ODETerm(self.func), y0=y0, **self.how).ys[-1]


def make(how: Any, called: Any = None) -> Any:
    func = Func(eqx.nn.MLP(2, 2, 8, 2, activation=jnp.tanh, key=jax.random.PRNGKey(0)))
    return Model(func, _Options(how), called or (lambda *a, **k: diffrax.diffeqsolve(*a, **k)))


class _Options(dict[str, Any]):
    """Hashable, as static fields must be."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


def fixed(name: str, step: float) -> dict[str, Any]:
    return {"solver": getattr(diffrax, name)(), "t0": 0.0, "t1": 1.0, "dt0": step}


def controlled(name: str, rtol: float, atol: float) -> dict[str, Any]:
    return {**fixed(name, 0.1), "stepsize_controller": diffrax.PIDController(rtol=rtol, atol=atol)}


@pytest.mark.parametrize(
    ("how", "solver"),
    [
        (lambda: fixed("Euler", 0.125), FixedStep("euler", step=0.125)),
        (lambda: fixed("Midpoint", 0.25), FixedStep("midpoint", step=0.25)),
        (lambda: controlled("Tsit5", 1e-3, 1e-6), Adaptive("tsit54", rtol=1e-3, atol=1e-6, control="sample")),
        (
            lambda: {**fixed("Heun", 0.1), "dt0": None, "stepsize_controller": diffrax.StepTo(ts=[0.0, 0.5, 1.0])},
            OnGrid("heun", (0.0, 0.5, 1.0)),
        ),
    ],
)
def test_the_own_solver_is_read_off_and_its_pass_is_the_librarys(how: Any, solver: Solver) -> None:
    model = make(how())
    subject = DiffraxSubject(model, X)
    assert subject.solvers == (solver,)
    assert subject.notes == ()
    expected = np.asarray(jax.vmap(model)(jnp.asarray(X.numpy())), dtype=np.float64)
    assert np.array_equal(subject.forward(X, None).outputs.numpy(), expected)


def test_fixed_steps_cost_their_stages() -> None:
    subject = DiffraxSubject(make(fixed("Euler", 0.125)), X)
    assert subject.forward(X, None).evaluations == 8
    assert subject.forward(X, lambda own: FixedStep("rk4", step=0.25)).evaluations == 16


@pytest.mark.parametrize(("compiled", "way"), [(False, -1.0), (True, 1.0)])
def test_a_solve_that_has_to_land_steps_to_every_time_to_be_saved(compiled: bool, way: float) -> None:
    times = way * np.array([0.125, 0.25, 0.34375, 0.359375, 0.75, 1.0])  # also in float32
    how = {**fixed("Euler", way / 4), "t1": way, "saveat": diffrax.SaveAt(ts=jnp.asarray(times))}

    def call(model: Any, x: Any) -> Any:
        return jax.vmap(model)(x)

    subject = DiffraxSubject(make(how), X, call=eqx.filter_jit(call) if compiled else call)

    def evaluations(solver: Solver) -> int:
        return subject.forward(X, lambda own: solver, double=True).evaluations

    steps, grid = FixedStep("rk4", step=0.25), OnGrid("rk4", tuple(way * np.array([0.0, 0.5, 1.0])))
    adaptive = Adaptive("dopri54", tolerance=1e-3)
    assert [evaluations(s) for s in (steps, grid)] == [4 * 4, 4 * 2]
    passed = evaluations(adaptive)
    with landing() as landings:
        # 0, 1/8, 1/4, 11/32, 23/64, 39/64, 3/4, 1
        assert evaluations(steps) == 4 * 7
        assert landings.times >= 6
        assert evaluations(grid) == 4 * 7
        assert evaluations(adaptive) >= 1 + 6 * 6 > passed
    assert evaluations(steps) == 4 * 4


@contextmanager
def compilations() -> Iterator[list[str]]:
    """What JAX compiles inside."""
    said, handler = list[str](), logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("jax").addHandler(handler)
    found = list[str]()
    try:
        with jax.log_compiles():
            yield found
    finally:
        logging.getLogger("jax").removeHandler(handler)
        found.extend(line for line in said if line.startswith("Finished XLA compilation"))


def test_the_steps_of_a_batch_are_those_of_the_sample_that_took_most() -> None:
    model, x = make(controlled("Tsit5", 1e-5, 1e-5)), X * torch.tensor([[1], [1], [1], [200]])

    def alone(y0: Any) -> Any:
        return diffrax.diffeqsolve(diffrax.ODETerm(model.func), y0=y0, **model.how).stats["num_steps"]

    steps = np.asarray(jax.vmap(alone)(jnp.asarray(x.numpy())))
    assert steps.min() < steps.max()
    assert DiffraxSubject(model, x).forward(x, None).evaluations == 6 * steps.max() + 1


def in_legs(model: Any, x: Any) -> Any:
    """Three solves, one after the other, of which JAX sees one call."""

    def leg(y: Any, t: Any) -> Any:
        how = {**model.how, "t0": t, "t1": t + 1}
        return diffrax.diffeqsolve(diffrax.ODETerm(model.func), y0=y, **how).ys[-1], None

    return jax.vmap(lambda y: jax.lax.scan(leg, y, jnp.arange(3.0))[0])(x)


@pytest.mark.parametrize("call", [in_legs, eqx.filter_jit(in_legs)], ids=["plain", "compiled"])
def test_all_solves_of_a_scan_are_counted(call: Any) -> None:
    subject = DiffraxSubject(make(controlled("Tsit5", 1e-3, 1e-3)), X, call=call)
    assert subject.forward(X, lambda own: FixedStep("rk4", step=0.25)).evaluations == 3 * 16
    assert subject.forward(X, lambda own: FixedStep("tsit54", step=0.25)).evaluations == 3 * (4 * 6 + 1)


def test_a_pass_of_many_samples_compiles_no_more_than_one_of_few() -> None:
    subject, made = DiffraxSubject(make(controlled("Tsit5", 1e-3, 1e-3)), X), list[int]()
    for n in (5, 50):
        with compilations() as found:
            subject.forward(points(n), None)
        made.append(len(found))
    assert made[0] == made[1] > 0


def closed(terms: Any, **how: Any) -> Any:
    """A field that is another function in each pass, as a lambda or a bound method is."""
    return diffrax.diffeqsolve(diffrax.ODETerm(lambda t, y, args: terms.vf(t, y, args)), **how)


def mapped(model: Any, x: Any) -> Any:
    return jax.vmap(model)(x)


WAYS = {"module": (None, None), "closure": (closed, None), "compiled": (None, eqx.filter_jit(mapped))}
"""How the field comes in, and how the model is called."""


@pytest.mark.parametrize("how", [fixed("Euler", 0.25), controlled("Tsit5", 1e-3, 1e-3)], ids=["fixed", "adaptive"])
@pytest.mark.parametrize("way", sorted(WAYS))
def test_one_compilation_serves_all_precisions_of_a_method(way: str, how: Any) -> None:
    called, call = WAYS[way]
    subject = DiffraxSubject(make(how, called), X, call=call)

    def costs(*shares: float) -> list[int]:
        changes = [lambda own, share=share: own.with_precision(own.precision * share) for share in shares]
        return [subject.forward(X, change, double=True).evaluations for change in changes]

    few = costs(0.5, 0.4)
    with compilations() as found:
        many = costs(0.3, 0.2, 0.1, 0.01, 0.001)
    assert found == []
    assert many[-1] > few[0], "they are other precisions indeed"


@pytest.mark.parametrize(
    ("way", "solver"), [("compiled", FixedStep("heun", step=0.1)), ("closure", Adaptive("dopri54", tolerance=1e-6))]
)
def test_a_pass_that_is_compiled_for_all_precisions_rounds_and_no_more(way: str, solver: Solver) -> None:
    called, call = WAYS[way]
    subject, plain = DiffraxSubject(make(fixed("Euler", 0.25), called), X, call=call), make(fixed("Euler", 0.25))
    done, expected = (each.forward(X, lambda own: solver, double=True) for each in (subject, DiffraxSubject(plain, X)))
    assert any(subject.programs.values())
    assert done.evaluations == expected.evaluations
    assert (done.outputs - expected.outputs).abs().max() < 1e-13


def test_what_was_compiled_for_an_audit_is_gone_with_it() -> None:
    """A closure's solves too, which nobody else could use."""
    live = list[int]()
    for _ in range(2):
        subject = DiffraxSubject(make(fixed("Euler", 0.25), closed), X)
        kept = [ref(program) for program in subject.programs.values() if program]
        assert kept
        del subject
        gc.collect()
        assert [program() for program in kept] == [None] * len(kept)
        live.append(len(jax.devices()[0].client.live_executables()))
    assert live[0] >= live[1]  # what earlier tests left may go meanwhile


def reads_values(model: Any, x: Any) -> Any:
    return jax.vmap(model)(x if float(x.max()) > 0 else -x)


def steps_by_the_data(model: Any, x: Any) -> Any:
    return jax.vmap(lambda y: closed(diffrax.ODETerm(model.func), y0=y, **fixed("Heun", x.shape[0] * x[0, 0])).ys[-1])(
        x
    )


@pytest.mark.parametrize("call", [reads_values, steps_by_the_data])
def test_a_model_that_cannot_be_traced_as_a_whole_is_passed_as_it_is(call: Any) -> None:
    x = X.abs()
    subject = DiffraxSubject(make(fixed("Euler", 0.25), closed), x, call=call)
    done = subject.forward(x, lambda own: FixedStep("rk4", step=0.125))
    assert list(subject.programs.values()) == 2 * [None]
    assert done.evaluations == 32
    plain = DiffraxSubject(make(fixed("Euler", 0.25)), x).forward(x, lambda own: FixedStep("rk4", step=0.125))
    assert (done.outputs - plain.outputs).abs().max() < 1e-6


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_solver_that_stops_is_a_sentence_however_the_model_is_compiled(
    way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys.modules[Solve.__module__], "MOST_STEPS", 8)
    called, call = WAYS[way]
    subject = DiffraxSubject(make({**fixed("Euler", 0.25), "max_steps": 8}, called), X, call=call)
    caplog.clear()  # of what JAX tells of the machine when it is first used
    assert subject.forward(X, lambda own: FixedStep("euler", step=0.125)).evaluations == 8
    with pytest.raises(SolverError, match="diffrax stopped: The maximum number of solver steps"):
        subject.forward(X, lambda own: FixedStep("euler", step=0.0625))
    assert caplog.records == []


@pytest.mark.parametrize("way", ["attribute", "imported", "compiled"])
def test_the_solver_is_swapped_however_diffeqsolve_was_imported(way: str) -> None:
    model = make(fixed("Euler", 0.25), imported_early if way == "imported" else None)
    call = eqx.filter_jit(lambda model, x: jax.vmap(model)(x)) if way == "compiled" else None
    expected = jax.vmap(make(fixed("Euler", 0.125)))(jnp.asarray(X.numpy()))
    own = jax.vmap(model)(jnp.asarray(X.numpy())) if call is None else call(model, jnp.asarray(X.numpy()))
    subject = DiffraxSubject(model, X, call=call)
    halved = subject.forward(X, lambda own: own.with_precision(own.precision / 2))
    assert np.abs(halved.outputs.numpy() - np.asarray(expected)).max() < 1e-6
    assert halved.evaluations == 8
    assert np.abs(subject.forward(X, None).outputs.numpy() - np.asarray(own)).max() < 1e-7
    again = jax.vmap(model)(jnp.asarray(X.numpy())) if call is None else call(model, jnp.asarray(X.numpy()))
    assert np.array_equal(np.asarray(own), np.asarray(again)), "what is compiled must not keep a tested solver"


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_of_ours_takes_the_same_fixed_steps_in_diffrax(method: str) -> None:
    def torch_rate(t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.sin(2 * z[1] + 3 * t), torch.cos(3 * z[0]) - z[1] / 4])

    def jax_rate(t: Any, z: Any, args: Any) -> Any:
        return jnp.stack([jnp.sin(2 * z[1] + 3 * t), jnp.cos(3 * z[0]) - z[1] / 4])

    ours = FixedStep(method, step=0.125)
    expected = solve(torch_rate, torch.tensor([0.3, -0.2], dtype=torch.float64), ours).final
    with jax.enable_x64(True):
        stepper, controller, dt0 = diffrax_solver(ours)
        start = jnp.asarray([0.3, -0.2])
        done = diffrax.diffeqsolve(
            diffrax.ODETerm(jax_rate), stepper, 0.0, 1.0, dt0, start, stepsize_controller=controller
        )
        assert np.abs(np.asarray(done.ys[-1]) - np.asarray(expected)).max() <= 1e-12


@pytest.mark.parametrize("method", adaptive_names())
def test_every_adaptive_method_of_ours_controls_its_steps_in_diffrax(method: str) -> None:
    subject = DiffraxSubject(make(controlled("Dopri5", 1e-3, 1e-3)), X)
    exact = subject.forward(X, lambda own: Adaptive("dopri54", tolerance=1e-9), double=True)
    done = subject.forward(X, lambda own: Adaptive(method, tolerance=1e-4), double=True)
    assert 1e-12 < (done.outputs - exact.outputs).abs().max() < 1e-2


class Series(eqx.Module):  # type: ignore[misc, unused-ignore]
    func: Func

    def __call__(self, ts: Any, y0: Any) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(self.func),
            diffrax.Tsit5(),
            t0=ts[0],
            t1=ts[-1],
            dt0=ts[1] - ts[0],
            y0=y0,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6),
            saveat=diffrax.SaveAt(ts=ts),
        )
        return solution.ys


def test_backwards_and_with_many_outputs_as_the_example_of_a_neural_ode_has_it() -> None:
    model, ts = Series(make({}).func), jnp.linspace(2.0, 0.0, 5)
    subject = DiffraxSubject(model, X, call=lambda model, x: jax.vmap(model, in_axes=(None, 0))(ts, x))
    own, fine = subject.forward(X, None), subject.forward(X, lambda own: FixedStep("rk4", step=0.01))
    assert own.outputs.shape == (4, 5, 2)
    assert (own.outputs - fine.outputs).abs().max() < 1e-2


def test_a_model_in_float32_runs_in_float64_and_one_that_insists_says_so() -> None:
    subject = DiffraxSubject(make(fixed("Euler", 0.125)), X)
    fine, finer = (
        subject.forward(X, lambda own, n=n: FixedStep("rk4", step=1 / n), double=True)  # type: ignore[misc]
        for n in (64, 128)
    )
    assert 0 < (fine.outputs - finer.outputs).abs().max() < 1e-8
    stubborn = DiffraxSubject(
        make(fixed("Euler", 0.125)), X, call=lambda model, x: jax.vmap(model)(x.astype(jnp.float32))
    )
    assert "float64" in stubborn.notes[0]
    with pytest.raises(DoublePrecisionError):
        stubborn.forward(X, None, double=True)


def test_a_predict_for_the_audit_is_at_hand() -> None:
    subject = DiffraxSubject(make(fixed("Euler", 0.25)), X)
    tested = FixedStep("midpoint", step=0.25)
    assert torch.equal(subject.predict(X, tested), subject.forward(X, lambda own: tested).outputs)


def test_an_implicit_method_runs_as_it_is_and_the_nearest_stands_for_it() -> None:
    how = {**controlled("Kvaerno5", 1e-3, 1e-3)}
    subject = DiffraxSubject(make(how), X)
    assert subject.solvers[0].method == "dopri54"
    assert "Kvaerno5" in subject.notes[0]


def test_too_many_steps_are_a_sentence() -> None:
    model = make({**controlled("Tsit5", 1e-6, 1e-6), "max_steps": 2})
    with pytest.raises(SolverError, match="diffrax stopped: The maximum number of solver steps"):
        DiffraxSubject(model, X)


class Failed:
    """What JAX keeps of a computation that a GPU was stopped in."""

    def block_until_ready(self) -> None:
        raise jax.errors.JaxRuntimeError("EquinoxRuntimeError: The maximum number of solver steps was reached.")


def test_what_a_stopped_solve_leaves_in_jax_stops_nothing_after_it() -> None:
    def stopped(model: Any, x: Any) -> Any:
        import_module("jax._src.dispatch").runtime_tokens.set_output_runtime_token(jax.devices()[0], Failed())
        return jax.vmap(model)(x)

    with pytest.raises(SolverError, match="diffrax stopped"):
        DiffraxSubject(make({**controlled("Tsit5", 1e-6, 1e-6), "max_steps": 2}), X, call=stopped)
    with pytest.raises(AuditError, match="not once"):
        DiffraxSubject(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.PRNGKey(0)), X)


def test_a_model_without_a_solve_is_refused() -> None:
    with pytest.raises(AuditError, match="not once"):
        DiffraxSubject(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.PRNGKey(0)), X)


def test_a_solve_until_an_event_is_refused() -> None:
    how = {**controlled("Tsit5", 1e-3, 1e-3), "event": diffrax.Event(lambda t, y, args, **kwargs: y[0] - 100.0)}
    with pytest.raises(AuditError, match="until an event"):
        DiffraxSubject(make(how), X)


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
    with pytest.raises(AuditError, match=r"give diffrax's equinox module itself \(not jax.vmap of it\)"):
        wm.audit(jax.vmap(make(fixed("Euler", 0.25))), (X, np.zeros(len(X))))


def test_passes_of_a_compiled_model_beside_an_audits_are_solved_by_its_own_solver() -> None:
    class Jitted(eqx.Module):  # type: ignore[misc, unused-ignore]
        inner: Any

        @eqx.filter_jit  # type: ignore[untyped-decorator, unused-ignore]
        def __call__(self, y0: Any) -> Any:
            return self.inner(y0)

    model = Jitted(make({"solver": diffrax.Euler(), "t0": 0.0, "t1": 1.0, "dt0": 0.5}))
    x = jnp.asarray(X.float().numpy())
    own, audited = jax.vmap(model)(x), Event()

    def audit() -> int:
        try:
            found = DiffraxSubject(model, X).forward(X, lambda own: FixedStep("rk4", step=1 / 4)).outputs
        finally:
            audited.set()
        return int(np.allclose(found, own, atol=1e-6))

    def passes() -> int:
        wrong = 0
        while not audited.is_set():
            wrong += not np.allclose(jax.vmap(model)(x), own, atol=1e-6)
        return wrong

    assert run_together(audit, passes, passes) == [0, 0, 0]


def judged(model: Any, batch: Any, shared: Any) -> wm.Verdict:
    def mean_square(outputs: Any, targets: Any) -> Any:
        return (outputs - targets).square().flatten(1).mean(dim=1)

    few = [Candidate("dopri54", 1.0)]
    return wm.audit(model, batch, shared=shared, metric=mean_square, threshold=1.0, candidates=few)


@pytest.mark.parametrize(("times", "shared"), [(10, ("ts",)), (16, (0,)), (24, (0,))])
def test_times_that_all_samples_share_are_not_mapped(times: int, shared: Any) -> None:
    model, ts, x = Series(make({}).func), np.linspace(0.0, 1.0, times), points(24)
    given = share((ts, x), shared, model)
    expected = jax.vmap(model, in_axes=(None, 0))(jnp.asarray(ts, float), jnp.asarray(x.numpy()))
    np.testing.assert_allclose(DiffraxSubject(model, given).forward(given, None).outputs, expected, atol=1e-6)


def test_a_model_of_times_and_a_start_is_audited_where_there_are_as_many_times_as_samples() -> None:
    model, ts, x = Series(make({}).func), np.linspace(0.0, 1.0, 24), points(24)
    targets = np.asarray(jax.vmap(model, in_axes=(None, 0))(jnp.asarray(ts, float), jnp.asarray(x.numpy())))
    verdict = judged(model, ((ts, x), targets), ("ts",))
    assert verdict.own.metric == pytest.approx(0, abs=1e-10)
    assert verdict.outcome == "FLOW"
    assert verdict.reference.dtype == "float64"


def test_times_that_were_not_named_are_told_how_to_be_shared() -> None:
    model, x = Series(make({}).func), points(24)
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

    subject = DiffraxSubject(Series(make({}).func), (ts, x), call=call)
    targets = call(subject.model, (jnp.asarray(ts, float), jnp.asarray(x.numpy()))).transpose(1, 0, 2)
    verdict = judged(subject, ((ts, x), np.asarray(targets)), (0,))
    assert verdict.own.metric == pytest.approx(0, abs=1e-10)
    assert set(seen) == {(24,)}
