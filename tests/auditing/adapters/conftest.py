"""What holds for all tests of diffrax: its call is restored, and JAX need not compile for speed."""

import sys
from collections.abc import Iterator
from functools import cache, partial
from importlib import import_module
from typing import Any

import pytest

QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""What JAX spends most of its time on: the tests compile much, and compute little."""
compiled_quickly = set[str]()
"""The tests that have done so since JAX last forgot all."""


@pytest.fixture(autouse=True)
def _the_call_of_diffrax_is_restored() -> Iterator[None]:
    before = _call()
    yield
    assert before is None or _call() is before


def _call() -> Any:
    return type(sys.modules["diffrax"].diffeqsolve).__call__ if "diffrax" in sys.modules else None


@pytest.fixture
def quick_jax(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX compiles in half the time, if this version of it knows these options, and looks through no tracebacks."""
    pytest.importorskip("jax").config.update("jax_traceback_filtering", "off")
    if "jax_as_ever" not in request.fixturenames and _knows_options():
        compiled_quickly.add(request.node.nodeid)
        compiler = import_module("jax._src.compiler")
        monkeypatch.setattr(compiler, "get_compile_options", partial(_quick_options, compiler.get_compile_options))


@pytest.fixture
def jax_as_ever() -> None:
    """Nothing that was compiled quickly is used, for tests that look at the last bits."""
    if compiled_quickly:
        import_module("jax").clear_caches()
        compiled_quickly.clear()


def _quick_options(make: Any, *given: Any, **named: Any) -> Any:
    return make(*given, **{**named, "env_options_overrides": {**(named.get("env_options_overrides") or {}), **QUICK}})


@cache
def _knows_options() -> bool:
    jax = import_module("jax")
    try:
        jax.jit(lambda x: x + 1, compiler_options=QUICK)(1.0)
    except Exception:  # noqa: BLE001 whichever JAX raises
        return False
    return True
