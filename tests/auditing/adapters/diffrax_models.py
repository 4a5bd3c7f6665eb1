"""Models written the way diffrax's examples write them. Needs diffrax, which no dependency of ours brings."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from tests.auditing.adapters.models import points

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    diffrax = pytest.importorskip("diffrax")
    import equinox as eqx  # type: ignore[import-not-found, unused-ignore]
    import jax  # type: ignore[import-not-found, unused-ignore]
    import jax.numpy as jnp  # type: ignore[import-not-found, unused-ignore]

__all__ = [
    "WAYS",
    "Model",
    "Series",
    "X",
    "closed",
    "compilations",
    "controlled",
    "diffrax",
    "eqx",
    "fixed",
    "func",
    "jax",
    "jnp",
    "make",
    "mapped",
]

X = points(4)


class Func(eqx.Module):  # type: ignore[misc, unused-ignore]
    """The example's vector field. A module, not a closure: diffrax compiles anew for each closure."""

    mlp: Any

    def __call__(self, t: Any, y: Any, args: Any) -> Any:
        return jnp.sin(t) + self.mlp(y)


@cache
def func() -> Func:
    """One for all models: with each network of its own, JAX compiles all solves anew."""
    return Func(eqx.nn.MLP(2, 2, 8, 2, activation=jnp.tanh, key=jax.random.PRNGKey(0)))


class Model(eqx.Module):  # type: ignore[misc, unused-ignore]
    """For one sample; its solve is asked for as `how` says."""

    func: Func
    how: Any = eqx.field(static=True)
    called: Any = eqx.field(static=True)

    def __call__(self, y0: Any) -> Any:
        return self.called(diffrax.ODETerm(self.func), y0=y0, **self.how).ys[-1]


def make(how: Any, called: Any = None) -> Any:
    return Model(func(), _Options(how), called or (lambda *a, **k: diffrax.diffeqsolve(*a, **k)))


class _Options(dict[str, Any]):
    """Hashable, as static fields must be."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


def fixed(name: str, step: float) -> dict[str, Any]:
    return {"solver": getattr(diffrax, name)(), "t0": 0.0, "t1": 1.0, "dt0": step}


def controlled(name: str, rtol: float, atol: float) -> dict[str, Any]:
    return {**fixed(name, 0.1), "stepsize_controller": diffrax.PIDController(rtol=rtol, atol=atol)}


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


def closed(terms: Any, **how: Any) -> Any:
    """A field that is another function in each pass, as a lambda or a bound method is."""
    return diffrax.diffeqsolve(diffrax.ODETerm(lambda t, y, args: terms.vf(t, y, args)), **how)


def mapped(model: Any, x: Any) -> Any:
    return jax.vmap(model)(x)


WAYS = {"module": (None, None), "closure": (closed, None), "compiled": (None, eqx.filter_jit(mapped))}
"""How the field comes in, and how the model is called."""


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
