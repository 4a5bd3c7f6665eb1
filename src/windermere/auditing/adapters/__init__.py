"""Others' models, unmodified: each adapter is a `Subject` for the models of one library.

`find_subject` tells which library a model solves with. The adapters themselves are in the modules named after their
libraries, and import those only when they are used.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from torch import nn

from windermere.auditing.adapters.odeint import OdeintSubject
from windermere.auditing.adapters.solves import Tape
from windermere.auditing.adapters.torch_model import TorchSubject
from windermere.auditing.subject import Subject
from windermere.errors import AuditError
from windermere.nn import ODEBlock
from windermere.nn.copies import number_of
from windermere.nn.draws import Draws
from windermere.nn.model_calls import evaluating, inputs_for
from windermere.solvers import Count, counting

__all__ = ["find_subject", "solves_by_blocks"]

TORCH = {
    "torchdiffeq": "TorchdiffeqSubject",
    "torchdyn": "TorchdynSubject",
    "torchode": "TorchodeSubject",
    "zuko": "ZukoSubject",
}
OWN = "windermere.odeint"
PLAIN = "windermere.solve"


def find_subject(model: Any, example_batch: Any) -> Subject | None:
    """The model as a subject of the library that it solves with; None where no solve was seen.

    Only libraries that are imported are looked at: a model that solves with one has imported it, by the end of its
    first pass at the latest.
    """
    if not isinstance(model, nn.Module):
        return _jax_subject(model, example_batch)
    seen, _ = _solving(model, example_batch)
    name = type(model).__name__
    if len(seen) > 1:
        raise AuditError(f"this {name} solves with {' and '.join(seen)} in one pass: audit each part on its own")
    if seen == [PLAIN]:
        raise AuditError(
            f"this {name} calls {PLAIN}, whose solver cannot be changed from outside: put field and solver into a "
            f"windermere.ODEBlock and call that, or call {OWN}"
        )
    if seen == [OWN]:
        return OdeintSubject(model, example_batch)
    return _kind(seen[0])(model, example_batch) if seen else None


def solves_by_blocks(model: nn.Module, example_batch: Any) -> bool:
    """Whether it is a model's ODEBlocks that solve, and not a library alone. An audit changes the solvers of blocks;
    what else such a model solves would keep its own, and pass for exact, so that it is refused."""
    seen, by_blocks = _solving(model, example_batch)
    if seen and by_blocks:
        raise AuditError(
            f"besides its ODEBlocks this {type(model).__name__} solves with {' and '.join(seen)}, which an audit of "
            "blocks would leave as it is: put every solve into a windermere.ODEBlock, or audit each part on its own"
        )
    return not seen


def _solving(model: nn.Module, example_batch: Any) -> tuple[list[str], bool]:
    """Who solves in one pass, ODEBlocks aside, and whether these do. A pass that imports a library is made once more,
    to see it solve."""
    known = _imported()
    seen = _seen_to_solve(model, example_batch, known)
    return seen if _imported() == known else _seen_to_solve(model, example_batch, _imported())


def _imported() -> list[str]:
    return [name for name in TORCH if name in sys.modules]


def _seen_to_solve(model: nn.Module, example_batch: Any, libraries: list[str]) -> tuple[list[str], bool]:
    """Who of these libraries, and of ours, solves in one pass, ODEBlocks aside, and whether these do."""
    kinds = {name: _kind(name) for name in libraries} | {OWN: OdeintSubject}
    tapes = {name: Tape(None, copy=number_of(model)) for name in kinds}
    arguments, named = inputs_for(model, example_batch, double=False)
    with Draws(model), evaluating(model), counting() as count, _blocks(model, count) as spent, ExitStack() as stack:
        for name, kind in kinds.items():
            stack.enter_context(kind.calls.watching(tapes[name]))
        model(*arguments, **named)
    missed = [name for name, tape in tapes.items() if tape.missed and not tape.solvers]
    if missed:
        raise AuditError(
            f"this {type(model).__name__} solves with {' and '.join(missed)} in threads that it starts itself, where "
            "another solver cannot be put: let it solve in the thread that calls it"
        )
    seen = [name for name, tape in tapes.items() if tape.solvers]
    plain = np.sum(count.checks) > sum(spent) + tapes[OWN].evaluations
    return [*seen, *([PLAIN] if plain else [])], bool(spent)


@contextmanager
def _blocks(model: nn.Module, count: Count) -> Iterator[list[int]]:
    """The evaluations of each call of an ODEBlock; one inside another's field belongs to that."""
    begun: list[int] = []
    spent: list[int] = []

    def before(*_: Any) -> None:
        begun.append(int(np.sum(count.checks)))

    def behind(*_: Any) -> None:
        first = begun.pop()
        spent.extend([] if begun else [int(np.sum(count.checks)) - first])

    blocks = [module for module in model.modules() if isinstance(module, ODEBlock)]
    hooks = [hook for b in blocks for hook in (b.register_forward_pre_hook(before), b.register_forward_hook(behind))]
    try:
        yield spent
    finally:
        for hook in hooks:
            hook.remove()


def _kind(library: str) -> type[TorchSubject]:
    kind: type[TorchSubject] = getattr(import_module(f"windermere.auditing.adapters.{library}"), TORCH[library])
    return kind


def _jax_subject(model: Any, example_batch: Any) -> Subject | None:
    """An equinox module, which is called for one sample."""
    equinox = sys.modules.get("equinox")
    if equinox is None or "diffrax" not in sys.modules or not isinstance(model, equinox.Module):
        return None
    kind = import_module("windermere.auditing.adapters.diffrax").DiffraxSubject
    subject: Subject | None = kind.found(model, example_batch)
    return subject
