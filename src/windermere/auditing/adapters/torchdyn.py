"""Models with torchdyn's `NeuralODE` inside, or its `MultipleShootingLayer`, and those that call its `odeint`.

While passes run, the two methods by which a NeuralODE solves, and what its functions look up (`torchdyn_functions`),
are replaced, for their threads alone.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from torch import Tensor

from windermere.auditing.adapters.interception import Interception
from windermere.auditing.adapters.solves import Tape, Watch
from windermere.auditing.adapters.torch_model import TorchSubject
from windermere.auditing.adapters.torchdyn_functions import replace_functions, the_next_loop_is_seen
from windermere.auditing.adapters.torchdyn_reading import asked_of, check_finite


def _replace_methods() -> Callable[[], None]:
    core = import_module("torchdyn.core")
    odeint, trajectory = core.ODEProblem.odeint, core.NeuralODE.trajectory
    core.ODEProblem.odeint = _replacing(odeint, trajectory=False)
    core.NeuralODE.trajectory = _replacing(trajectory, trajectory=True)
    restore_functions = replace_functions(lambda field: METHODS_OF_ITS.watcher(field))

    def restore() -> None:
        core.ODEProblem.odeint, core.NeuralODE.trajectory = odeint, trajectory
        restore_functions()

    return restore


METHODS_OF_ITS: Interception[Tape] = Interception(_replace_methods)


class TorchdynSubject(TorchSubject):
    """A module with torchdyn's NeuralODE inside (or one itself), as it is."""

    library = "torchdyn"
    calls = METHODS_OF_ITS

    def output_of(self, result: Any) -> Tensor:
        """A NeuralODE returns its times and then its states: those are audited."""
        if isinstance(result, tuple) and len(result) == 2 and all(isinstance(r, Tensor) for r in result):
            times, states = result
            if times.ndim == 1 and len(states) == len(times):
                return super().output_of(states)
        return super().output_of(result)


def _replacing(original: Callable[..., Any], *, trajectory: bool) -> Callable[..., Any]:
    """The method of a NeuralODE that solves: `odeint` gives times and states, `trajectory` states only."""

    def method(problem: Any, x: Any, t_span: Any, save_at: Any = (), args: Any = None) -> Any:
        more = () if trajectory else (save_at, {} if args is None else args)
        own_way = partial(original, problem, x, t_span, *more)
        tape = METHODS_OF_ITS.watcher(problem)
        if tape is None:
            return own_way()
        original_way = partial(_original, problem, own_way)
        return tape.answer(asked_of(problem, x, t_span, save_at, original_way, trajectory=trajectory))

    return method


def _original(problem: Any, own_way: Callable[[], Any], watch: Watch) -> Any:
    def seen(module: Any, given: Any, rate: Tensor) -> None:
        watch(rate)
        check_finite(rate)

    handle = problem.vf.register_forward_hook(seen)
    try:
        with the_next_loop_is_seen():
            return own_way()
    finally:
        handle.remove()
