"""Models of diffrax that JAX compiles: what is compiled how often, and that nothing compiled keeps a tested solver."""

import gc
import sys
from functools import cache
from itertools import product
from threading import Event
from typing import Any
from weakref import ref

import numpy as np
import pytest

from tests.auditing.adapters.diffrax_models import (
    WAYS,
    X,
    closed,
    compilations,
    controlled,
    diffrax,
    eqx,
    fixed,
    jax,
    jnp,
    make,
)
from tests.auditing.adapters.models import points
from tests.threads import run_together
from windermere.auditing.adapters.diffrax import DiffraxSubject, clear_caches
from windermere.auditing.adapters.diffrax_solves import Solve
from windermere.errors import SolverError
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver
from windermere.solvers.landing import landing

pytestmark = pytest.mark.usefixtures("quick_jax")
imported_early = diffrax.diffeqsolve


STEPS, GRID = FixedStep("rk4", step=0.25), OnGrid("rk4", (0.0, 0.5, 1.0))
ADAPTIVE = Adaptive("dopri54", tolerance=1e-3)
LANDING: list[Any] = [
    (False, -1.0, STEPS),
    (False, -1.0, ADAPTIVE),
    (True, 1.0, GRID),
    *(pytest.param(*case, marks=pytest.mark.thorough) for case in product([True], [1.0], [STEPS, ADAPTIVE])),
    pytest.param(False, -1.0, GRID, marks=pytest.mark.thorough),
]


@pytest.mark.parametrize(("compiled", "way", "solver"), LANDING)
def test_a_solve_that_has_to_land_steps_to_every_time_to_be_saved(compiled: bool, way: float, solver: Solver) -> None:
    times = way * np.array([0.125, 0.25, 0.34375, 0.359375, 0.75, 1.0])  # also in float32
    how = {**fixed("Euler", way / 4), "t1": way, "saveat": diffrax.SaveAt(ts=jnp.asarray(times))}
    tested = OnGrid("rk4", tuple(way * np.array(GRID.times))) if isinstance(solver, OnGrid) else solver

    def call(model: Any, x: Any) -> Any:
        return jax.vmap(model)(x)

    subject = DiffraxSubject(make(how), X, call=eqx.filter_jit(call) if compiled else call)

    def evaluations() -> int:
        return subject.forward(X, lambda own: tested, double=True).evaluations

    passed = evaluations()
    with landing() as landings:
        landed = evaluations()
        assert landings.times >= 6
    if solver is ADAPTIVE:
        assert landed >= 1 + 6 * 6 > passed
    else:  # 0, 1/8, 1/4, 11/32, 23/64, 39/64, 3/4, 1
        assert (passed, landed) == (4 * 4 if solver is STEPS else 4 * 2, 4 * 7)
    assert evaluations() == passed


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
    jax.clear_caches()  # type: ignore[no-untyped-call, unused-ignore]
    subject, made = DiffraxSubject(make(controlled("Tsit5", 1e-3, 1e-3)), X), list[int]()
    for n in (5, 50):
        with compilations() as found:
            subject.forward(points(n), None)
        made.append(len(found))
    assert made[0] == made[1] > 0


KINDS = {"fixed": fixed("Euler", 0.25), "adaptive": controlled("Tsit5", 1e-3, 1e-3)}
PAIRS = [("compiled", "fixed"), ("closure", "adaptive"), ("module", "adaptive")]
"""Each way with some kind of steps, and each kind some way; the other pairs show the same again."""


@pytest.mark.parametrize(
    ("way", "kind"),
    [*PAIRS, *(pytest.param(*x, marks=pytest.mark.thorough) for x in product(WAYS, KINDS) if x not in PAIRS)],
)
def test_one_compilation_serves_all_precisions_of_a_method(way: str, kind: str) -> None:
    called, call = WAYS[way]
    subject = DiffraxSubject(make(KINDS[kind], called), X, call=call)

    def costs(*shares: float) -> list[int]:
        changes = [lambda own, share=share: own.with_precision(own.precision * share) for share in shares]
        return [subject.forward(X, change, double=True).evaluations for change in changes]

    few = costs(0.5, 0.4)
    with compilations() as found:
        many = costs(0.3, 0.2, 0.1, 0.01, 0.001)
    assert found == []
    assert many[-1] > few[0], "they are other precisions indeed"


@cache
def uncompiled() -> DiffraxSubject:
    """The same model, whose passes no one compiles as a whole: one for all tests, since to look at it takes seconds."""
    return DiffraxSubject(make(fixed("Euler", 0.25)), X)


@pytest.mark.usefixtures("jax_as_ever")
@pytest.mark.parametrize(
    ("way", "solver"), [("compiled", FixedStep("heun", step=0.1)), ("closure", Adaptive("dopri54", tolerance=1e-6))]
)
def test_a_pass_that_is_compiled_for_all_precisions_rounds_and_no_more(way: str, solver: Solver) -> None:
    called, call = WAYS[way]
    subject = DiffraxSubject(make(fixed("Euler", 0.25), called), X, call=call)
    done, expected = (each.forward(X, lambda own: solver, double=True) for each in (subject, uncompiled()))
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
    plain = uncompiled().forward(x, lambda own: FixedStep("rk4", step=0.125))
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
        while not audited.wait(0.01):  # more passes than a hundred a second would only hold up the audit
            wrong += not np.allclose(jax.vmap(model)(x), own, atol=1e-6)
        return wrong

    assert run_together(audit, passes, passes) == [0, 0, 0]


def test_caches_that_another_thread_adds_to_meanwhile_are_cleared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [RuntimeError("dictionary changed size during iteration"), None]

    def clear() -> None:
        if answer := answers.pop(0):
            raise answer

    monkeypatch.setattr(jax, "clear_caches", clear)
    clear_caches()
    assert answers == []
