"""However a model comes in, it becomes a subject."""

from typing import Any

from torch import nn

from windermere.auditing.adapters import find_subject, solves_by_blocks
from windermere.auditing.block_model import ModelSubject
from windermere.auditing.subject import PredictSubject, Subject
from windermere.checks import takes_two
from windermere.errors import AuditError, UsageError
from windermere.nn import ODEBlock
from windermere.nn.copies import copy_of, without_replicas
from windermere.nn.functions import as_module
from windermere.solvers import Solver
from windermere.solvers.members import members_of


def as_subject(model: Any, x: Any, trained_with: Solver | None) -> Subject:
    """However a model came in; a module is copied, so that nobody else meets what is changed in it."""
    given = model = without_replicas(model)
    model = as_module(model, x) if trained_with is None else model
    if isinstance(model, nn.Module) and trained_with is None:
        model = copy_of(model)
    if isinstance(model, nn.Module) and any(isinstance(m, ODEBlock) for m in model.modules()):
        if trained_with is not None:
            raise UsageError(
                "trained_with is for predict(x, solver): a model with ODEBlocks has its own solvers; change those by "
                "windermere.using(model, solver), or leave it out"
            )
        blocks = ModelSubject(model)
        if solves_by_blocks(model, x):
            return blocks
    if hasattr(model, "forward") and hasattr(model, "solvers") and hasattr(model, "insight"):
        subject: Subject = model
        return subject
    if trained_with is not None and callable(model):
        if members_of(trained_with)[1] is not None or not takes_two(model):
            raise UsageError(
                "a function to audit is called as predict(x, solver), with one solver: let it take both, and give "
                "trained_with=... one that is no list"
            )
        return PredictSubject(model, trained_with)
    found: Subject | None = find_subject(model, x)
    if found is None and not callable(given):
        raise UsageError(
            f"a model is called with a batch, which '{type(given).__name__}' cannot be: give the model itself"
        )
    if found is None:
        raise AuditError(
            f"no solve was seen in this {type(given).__name__}: use windermere.ODEBlock or windermere.odeint, "
            "torchdiffeq, torchdyn or torchode inside, give a zuko flow as lambda x: flow().log_prob(x) and diffrax's "
            "equinox module itself (not jax.vmap of it), wrap a function in a torch.nn.Module that has its networks as "
            "submodules, or give predict(x, solver) together with trained_with=...; for steps in a loop of your own "
            "there are windermere.audit_loop and windermere.Sampler"
        )
    return found
