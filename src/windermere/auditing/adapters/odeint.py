"""Models that call `windermere.odeint` or `windermere.odeint_adjoint`, however they imported them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from torch import Tensor

from windermere.auditing.adapters.interception import Interception
from windermere.auditing.adapters.solves import Asked, Tape, Watch, drawing_again, name_note
from windermere.auditing.adapters.torch_model import TorchSubject
from windermere.solvers import Adaptive, Solver, State, counting, odeint_call
from windermere.solvers.odeint_call import Call
from windermere.solvers.odeint_options import ADAPTIVE, FIXED, FixedSteps

NAMES = {method: name for name, method in {**FIXED, **ADAPTIVE}.items()}
"""Torchdiffeq's names, which odeint is called with."""


def _replace_answer() -> Callable[[], None]:
    own = odeint_call.answer
    odeint_call.answer = partial(_answer, own)

    def restore() -> None:
        odeint_call.answer = own

    return restore


ANSWERS: Interception[Tape] = Interception(_replace_answer)


class OdeintSubject(TorchSubject):
    """A module whose forward pass calls our odeint, as it is."""

    library = "windermere.odeint"
    calls = ANSWERS


def _answer(own: Callable[[Call], State], call: Call) -> State:
    tape = ANSWERS.watcher(call.func)
    if tape is None:
        return own(call)
    states: State = tape.answer(
        Asked(
            own=_with_a_budget(call.solver),
            notes=(*call.notes(), *name_note(NAMES[call.solver.method], call.solver.method)),
            field=call.field,
            start=call.start,
            times=call.times,
            times_in=call.t.dtype,
            original=partial(_original, own, call, tape),
            end_of=_end,
            result=lambda solution: solution.states,
            interp=call.steps.interp if isinstance(call.steps, FixedSteps) else None,
            stops=() if isinstance(call.steps, FixedSteps) else call.steps.step_t,
            jumps=() if isinstance(call.steps, FixedSteps) else call.steps.jump_t,
        )
    )
    return states


def _with_a_budget(own: Solver) -> Solver:
    """Torchdiffeq's default, no limit of steps, is not for solvers that are only tried: one could go on for hours."""
    return replace(own, tolerance=None, max_steps=Adaptive.max_steps) if isinstance(own, Adaptive) else own


def _original(own: Callable[[Call], State], call: Call, tape: Tape, watch: Watch) -> State:
    """The call's own answer. What a solve within its field evaluates is counted with it, and so once."""
    drawing = () if tape.draws is None else (partial(drawing_again, call.field, tape.draws),)
    with counting() as count:
        states = own(replace(call, field=drawing[0]) if drawing else call)
    if tape.solving == 1:
        tape.evaluations += int(np.max(count.checks) + np.max(count.forward))
    return states


def _end(states: State) -> State:
    return states[-1] if isinstance(states, Tensor) else tuple(part[-1] for part in states)
