"""What the audit reads off a model that solves with diffrax, its passes with our methods, and what it refuses."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

import windermere as wm
from tests.auditing.adapters.diffrax_models import X, controlled, diffrax, eqx, fixed, func, jax, jnp, make
from windermere.auditing import Candidate
from windermere.auditing.adapters.diffrax import DiffraxSubject, diffrax_solver
from windermere.errors import AuditError, DoublePrecisionError, SolverError
from windermere.solvers import METHODS, Adaptive, FixedStep, OnGrid, Solver, adaptive_names, solve

pytestmark = pytest.mark.usefixtures("quick_jax")


@pytest.mark.usefixtures("jax_as_ever")
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
    subject = DiffraxSubject(make(fixed("Euler", 0.25)), X)
    assert subject.forward(X, None).evaluations == 4
    assert subject.forward(X, lambda own: FixedStep("rk4", step=0.25)).evaluations == 16


def test_the_steps_of_a_batch_are_those_of_the_sample_that_took_most() -> None:
    model, x = make(controlled("Tsit5", 1e-5, 1e-5)), X * torch.tensor([[1], [1], [1], [200]])

    def alone(y0: Any) -> Any:
        return diffrax.diffeqsolve(diffrax.ODETerm(model.func), y0=y0, **model.how).stats["num_steps"]

    steps = np.asarray(jax.vmap(alone)(jnp.asarray(x.numpy())))
    assert steps.min() < steps.max()
    assert DiffraxSubject(model, x).forward(x, None).evaluations == 6 * steps.max() + 1


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
    subject = DiffraxSubject(make(controlled("Tsit5", 1e-3, 1e-3)), X)
    exact = subject.forward(X, lambda own: Adaptive("dopri54", tolerance=1e-9), double=True)
    done = subject.forward(X, lambda own: Adaptive(method, tolerance=1e-4), double=True)
    assert 1e-12 < (done.outputs - exact.outputs).abs().max() < 1e-2


def test_a_model_in_float32_runs_in_float64_and_one_that_insists_says_so() -> None:
    subject = DiffraxSubject(make(fixed("Euler", 0.25)), X)
    fine, finer = (
        subject.forward(X, lambda own, n=n: FixedStep("rk4", step=1 / n), double=True)  # type: ignore[misc]
        for n in (64, 128)
    )
    assert 0 < (fine.outputs - finer.outputs).abs().max() < 1e-8
    stubborn = DiffraxSubject(
        make(fixed("Euler", 0.25)), X, call=lambda model, x: jax.vmap(model)(x.astype(jnp.float32))
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


@pytest.mark.usefixtures("jax_as_ever")
def test_noise_of_a_key_is_the_same_under_the_flow() -> None:
    """Hutchinson's trace, as in diffrax's continuous normalizing flow."""

    class Noisy(eqx.Module):  # type: ignore[misc, unused-ignore]
        func: Any

        def __call__(self, y0: Any) -> Any:
            noise = jax.random.normal(jax.random.PRNGKey(1), y0.shape)
            end = diffrax.diffeqsolve(diffrax.ODETerm(self.func), y0=y0, **fixed("Tsit5", 0.125)).ys[-1]
            return (end + noise).sum()

    verdict = wm.audit(Noisy(func()), X, metric="nll", candidates=[Candidate("rk4", 0.5)])
    assert verdict.outcome is wm.Outcome.FLOW
    assert verdict.reference.dtype == "float32"
    assert any("random numbers" in note for note in verdict.notes)
