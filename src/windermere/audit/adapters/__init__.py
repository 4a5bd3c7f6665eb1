"""Others' models, unmodified: each adapter is a `Subject` for the models of one library.

`find_subject` tells which library a model solves with. The adapters themselves are in the modules named after their
libraries, and import those only when they are used.
"""

import sys
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from torch import nn

from windermere.audit.adapters.modules import evaluating, inputs_for
from windermere.audit.adapters.solves import Tape
from windermere.audit.adapters.torch_model import TorchSubject
from windermere.audit.subject import Subject
from windermere.errors import AuditError

__all__ = ["find_subject"]

TORCH = {"torchdiffeq": "TorchdiffeqSubject", "torchdyn": "TorchdynSubject", "torchode": "TorchodeSubject"}


def find_subject(model: Any, example_batch: Any) -> Subject | None:
    """The model as a subject of the library that it solves with; None where no solve was seen.

    Only libraries that are imported already are looked at: a model that solves with one has imported it.
    """
    if not isinstance(model, nn.Module):
        return _jax_subject(model, example_batch)
    kinds = {name: _kind(name) for name in TORCH if name in sys.modules}
    tapes = {name: Tape(None) for name in kinds}
    arguments, named = inputs_for(model, example_batch, double=False)
    with evaluating(model), ExitStack() as stack:
        for name, kind in kinds.items():
            stack.enter_context(kind.intercepting(tapes[name]))
        model(*arguments, **named)
    seen = [name for name, tape in tapes.items() if tape.solvers]
    if len(seen) > 1:
        raise AuditError(
            f"this {type(model).__name__} solves with {' and '.join(seen)} in one pass: audit each part on its own"
        )
    return kinds[seen[0]](model, example_batch) if seen else None


def _kind(library: str) -> type[TorchSubject]:
    kind: type[TorchSubject] = getattr(import_module(f"windermere.audit.adapters.{library}"), TORCH[library])
    return kind


def _jax_subject(model: Any, example_batch: Any) -> Subject | None:
    """An equinox module, which is called for one sample."""
    equinox = sys.modules.get("equinox")
    if equinox is None or "diffrax" not in sys.modules or not isinstance(model, equinox.Module):
        return None
    kind = import_module("windermere.audit.adapters.diffrax").DiffraxSubject
    subject: Subject | None = kind.found(model, example_batch)
    return subject
