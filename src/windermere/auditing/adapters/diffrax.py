"""Equinox models that solve with diffrax, however they imported `diffeqsolve`.

Our solvers are torch's and can't run inside JAX, so diffrax itself solves, with our methods and precisions: any tableau
of ours becomes a solver of its own. What JAX has compiled before does not call `diffeqsolve` again: where that is the
case, its caches are cleared before and after a model is traced, so that nothing compiled keeps a solver that was only
tested. What is traced here belongs to a context of its own besides, so that no other thread meets it.
"""

import re
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, partial
from importlib import import_module
from itertools import count
from typing import Any

import numpy as np
from torch import Tensor

from windermere.auditing.adapters.diffrax_programs import Program, kind_of, widths_drawn
from windermere.auditing.adapters.diffrax_solves import Solve, diffrax_solver, forget_solves, watching
from windermere.auditing.subject import Change, Insight, Pass, as_outputs, why_not_double
from windermere.errors import AuditError, DoublePrecisionError, SolverError, WindermereError, describe_error
from windermere.nn.model_calls import arguments_for
from windermere.nn.shared import Shared, cut_places, holds_samples, plain
from windermere.solvers import Solver
from windermere.solvers.landing import is_landing

__all__ = ["DiffraxSubject", "diffrax_solver"]

OTHER_NOISE = (
    "the model draws random numbers from JAX, which would be others in float64: its flow is solved for in float32"
)
BatchCall = Callable[[Any, Any], Any]
"""call(model, x): the model for a whole batch."""


class NoSolveError(AuditError):
    """A model that does not solve with diffrax."""


class DiffraxSubject:
    """An equinox model, as it is. `call(model, x)` gives its outputs for a batch; without it the model is taken to be
    written for one sample, and mapped over the batch. Outputs decide alone: states and field stay in JAX. As with
    `jax.jit`, what a closure captures is read when it is compiled: if that changes, make another subject."""

    library = "diffrax"

    def __init__(self, model: Any, example_batch: Any, *, call: BatchCall | None = None) -> None:
        _let_jax_know_shared()
        self.model, self.call = model, _mapped if call is None else lambda model, x: call(model, plain(x))
        self.batch_axis = 0 if call is None else None
        """Where the samples are among the outputs; None where only `call` knows."""
        self.compiled = self.anew = False
        """Whether JAX compiles the calls of `diffeqsolve` away, and whether it compiles anew for each pass."""
        self.programs: dict[Hashable, Program | None] = {}
        self.numbers = count()
        seen = self._look(example_batch)
        if not seen:
            raise NoSolveError(
                f"this {type(model).__name__} called diffrax.diffeqsolve not once on the example batch: give "
                "call(model, x), which runs it on a batch"
            )
        self.solvers: tuple[Solver, ...] = tuple(solve.own() for solve in seen)
        self.draws_apart = self._draws_apart(example_batch)
        """Whether it draws random numbers that are others in float64."""
        about = [note for solve in seen for note in solve.notes()]
        self.notes: tuple[str, ...] = (*dict.fromkeys(about), *why_not_double(self, example_batch))

    @classmethod
    def found(cls, model: Any, example_batch: Any) -> "DiffraxSubject | None":
        """The subject, or None where the model solves nothing."""
        try:
            return cls(model, example_batch)
        except NoSolveError:
            return None
        except WindermereError:
            raise
        except Exception as error:  # whatever the model raises
            several = len(places := cut_places(example_batch)) > 1
            common = f"where all samples share an input, name it, as shared=({places[0]!r},); " if several else ""
            raise AuditError(
                f"this {type(model).__name__} could not be called for one sample ({describe_error(error)}): {common}"
                "where it takes whole batches, audit DiffraxSubject(model, inputs, call=lambda model, x: model(x)) of "
                "windermere.auditing.adapters.diffrax instead"
            ) from error

    def forward(self, x: Any, change: Change | None, *, double: bool = False) -> Pass:
        outputs, seen = self._run(x, change, double=double)
        return Pass(outputs=as_outputs(outputs), states=None, evaluations=sum(solve.evaluations() for solve in seen))

    def insight(self, x: Any) -> Insight | None:
        return None

    def predict(self, x: Any, solver: Solver) -> Tensor:
        """As `windermere.audit(predict, ...)` takes it."""
        return self.forward(x, lambda own: solver).outputs

    def _look(self, x: Any) -> list[Solve]:
        """The solves of a pass. If a second one shows fewer of them, JAX has compiled the calls away."""
        _, first = self._run(x, None, double=False)
        _, second = self._run(x, None, double=False)
        if first and len(first) == len(second):
            self.anew = [kind_of(solve.given) for solve in first] != [kind_of(solve.given) for solve in second]
            return first
        self.anew = self.compiled = True
        return self._run(x, None, double=False)[1]

    def _draws_apart(self, x: Any) -> bool:
        """JAX makes a number of as many bits as its dtype has: of the same key float64 gets other noise."""

        def drawn(double: bool) -> frozenset[int]:
            with _precision(double), self._fresh():
                return widths_drawn(self.call, _in_double(self.model) if double else self.model, _as_jax(x))

        return 64 in (doubled := drawn(True)) and doubled != drawn(False)

    def _run(self, x: Any, change: Change | None, *, double: bool) -> tuple[Any, list[Solve]]:
        if double and self.draws_apart:
            raise DoublePrecisionError(OTHER_NOISE)
        with _precision(double), _naming_failures(double):
            model, inputs = _in_double(self.model) if double else self.model, _as_jax(x)
            # In its own precision it is compiled as its own pass is, so that both round alike.
            if change and self.anew and any(change(own) != own for own in self.solvers):
                given = model, inputs, tuple(diffrax_solver(change(own)) for own in self.solvers)
                program = self._program(given, double)
                if program:
                    return program.run(given)
            return self._pass(model, inputs, change, double)

    def _pass(self, model: Any, inputs: Any, change: Change | None, double: bool) -> tuple[Any, list[Solve]]:
        answer = None if change is None else lambda own: diffrax_solver(change(own))
        with self._fresh(), watching(answer, double=double) as seen:
            outputs = np.asarray(self.call(model, inputs))
            import_module("jax").effects_barrier()
        return outputs, seen

    def _program(self, given: Any, double: bool) -> Program | None:
        """None where all cannot be traced at once: a model may read values in Python."""
        key = double, is_landing(), kind_of(given[1:])
        if key not in self.programs:
            with self._fresh(), suppress(Exception):
                self.programs[key] = Program(self.call, self.solvers, given, double=double)
        return self.programs.setdefault(key, None)

    @contextmanager
    def _fresh(self) -> Iterator[None]:
        """What JAX compiles inside serves audits alone; this pass alone where calls are compiled away."""
        clear = clear_caches if self.compiled else lambda: None
        clear()
        try:
            with _context()(f"{id(self)}.{next(self.numbers)}" if self.compiled else "an audit"):
                yield
        finally:
            clear()
            if self.anew:
                forget_solves()


def clear_caches() -> None:
    """Clears those of JAX, again if another thread adds one meanwhile: JAX goes through a dictionary of them."""
    clear = import_module("jax").clear_caches
    for _ in range(100):
        with suppress(RuntimeError):
            clear()
            return
    clear()


@cache
def _context() -> Callable[[str], AbstractContextManager[Any]]:
    """Compiled functions are kept apart by its value; JAX has such contexts since 0.8."""
    jax = import_module("jax")
    made: Callable[[str], AbstractContextManager[Any]]
    made = jax.make_user_context() if hasattr(jax, "make_user_context") else lambda value: nullcontext()
    return made


@contextmanager
def _naming_failures(double: bool) -> Iterator[None]:
    """diffrax stops with errors of JAX's; ours are sentences."""
    equinox = import_module("equinox")
    try:
        yield
    except RuntimeError as error:
        _settle()
        said = re.search(r"EquinoxRuntimeError: (.+)", str(error))  # below a stack, above advice
        if not said and not isinstance(error, equinox.EquinoxRuntimeError):
            raise
        raise SolverError(f"diffrax stopped: {said[1] if said else 'it gave no reason'}") from error
    except TypeError as error:
        if not double or "float32" not in str(error):
            raise
        raise DoublePrecisionError(f"the model cannot run in float64: {str(error).splitlines()[0]}") from error


def _settle() -> None:
    """JAX raises what stopped a GPU again wherever it waits for effects, until something with effects ran there."""
    jax = import_module("jax")
    run = jax.jit(lambda x: jax.debug.callback(lambda _: None, x))
    for device in jax.local_devices():
        run(jax.device_put(0.0, device))


def _precision(double: bool) -> AbstractContextManager[Any]:
    """float64 where it is asked for: JAX has it switched off."""
    if not double:
        return nullcontext()
    jax = import_module("jax")
    switch = jax.enable_x64 if hasattr(jax, "enable_x64") else import_module("jax.experimental").enable_x64
    switched: AbstractContextManager[Any] = switch(True)
    return switched


def _in_double(model: Any) -> Any:
    jax, equinox = import_module("jax"), import_module("equinox")
    convert = partial(_convert_leaf, equinox, import_module("jax.numpy"))
    return jax.tree_util.tree_map(convert, model)


def _convert_leaf(equinox: Any, jnp: Any, leaf: Any) -> Any:
    return jnp.asarray(leaf, jnp.float64) if equinox.is_inexact_array(leaf) else leaf


def _as_jax(x: Any) -> Any:
    """Torch or NumPy batches as JAX arrays, in float64 only where that is switched on."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")
    bare = jax.tree_util.tree_map(lambda v: v.detach().cpu().numpy() if isinstance(v, Tensor) else v, x)
    return jax.tree_util.tree_map(lambda v: jnp.asarray(v, float) if _is_real(v) else v, bare)


def _is_real(value: Any) -> bool:
    return not isinstance(value, str) and np.result_type(value).kind == "f"


@cache
def _let_jax_know_shared() -> None:
    """JAX looks for arrays in them, as in tuples."""
    register = import_module("jax").tree_util.register_pytree_node
    register(Shared, lambda marked: ((marked.value,), None), lambda _, parts: Shared(*parts))


def _mapped(model: Any, x: Any) -> Any:
    """The model for each sample; what all share is given to each as it is."""
    jax = import_module("jax")
    leaves, structure = jax.tree_util.tree_flatten(x, is_leaf=lambda part: isinstance(part, Shared))
    places = [place for place, leaf in enumerate(leaves) if holds_samples(leaf)]

    def alone(*sample: Any) -> Any:
        parts = dict(enumerate(leaves)) | dict(zip(places, sample, strict=True))
        whole = plain(jax.tree_util.tree_unflatten(structure, parts.values()))
        arguments, named = arguments_for(model, whole) or ((whole,), {})
        return model(*arguments, **named)

    return jax.vmap(alone)(*(leaves[place] for place in places))
