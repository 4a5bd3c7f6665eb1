"""How many threads PyTorch takes in an audit: a small model is solved sooner with one."""

from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

from torch import nn

from windermere.auditing.subject import Subject
from windermere.fast.cpu.native_call import threads_for_c_alone
from windermere.nn.shared import arrays_of

ENTRIES, PRODUCTS = 1 << 16, 1 << 23
"""How large a batch of a small model is at most: an evaluation of its field takes a millisecond then. Where others work
on the same cores, its threads would wait for one another ten times as long."""


def threads_for(subject: Subject, x: Any) -> AbstractContextManager[None]:
    """While this is open: one thread for a small model, as many as ever for any other."""
    return threads_for_c_alone() if is_small(subject, x) else nullcontext()


def is_small(subject: Subject, x: Any) -> bool:
    """By its weights and its inputs; nobody knows it of what hides its weights."""
    model = getattr(getattr(subject, "subject", subject), "model", None)
    if not isinstance(model, nn.Module) or not all(weight.is_cpu for weight in model.parameters()):
        return False
    shapes = [leaf.shape for leaf in arrays_of(x)]
    rows = max((prod(shape[:-1]) for shape in shapes), default=0)
    weights = sum(weight.numel() for weight in model.parameters())
    return sum(map(prod, shapes)) <= ENTRIES and rows * weights <= PRODUCTS
