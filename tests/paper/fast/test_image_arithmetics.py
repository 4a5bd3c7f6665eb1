"""The names of arithmetics, the flags of cuDNN that they set, and where nothing is rounded."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn
from torch.backends import cudnn

from tests.paper.fast.image_solves import SOLVERS, a_field, pictures
from tests.torches import needs_torch
from windermere import audit
from windermere.errors import UnknownNameError, UsageError
from windermere.nn import ODEBlock, using
from windermere.nn.arithmetic import ARITHMETICS, arithmetic_of, convolving_in, unrounded
from windermere.paper.architectures import ImageField, architecture


def cudnn_flags() -> tuple[Any, ...]:
    newer = [getattr(cudnn, name).fp32_precision for name in ("conv", "rnn") if hasattr(cudnn, name)]
    return cudnn.allow_tf32, cudnn.benchmark, *newer


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("before", [True, False])
def test_cudnns_flags_are_as_before_after_an_error_too(arithmetic: str, before: bool) -> None:
    own = cudnn.allow_tf32
    try:
        cudnn.allow_tf32 = before
        flags = cudnn_flags()
        with suppress(ZeroDivisionError), convolving_in(arithmetic, tuned=True):
            assert cudnn.allow_tf32 == (arithmetic == "tf32")
            assert cudnn.benchmark
            raise ZeroDivisionError
        assert cudnn_flags() == flags
    finally:
        cudnn.allow_tf32 = own


@needs_torch(9, "with newer flags")
def test_flags_set_the_newer_way_are_left_as_they_were() -> None:
    conv: Any = cudnn.conv  # type: ignore[attr-defined]
    own = conv.fp32_precision
    try:
        conv.fp32_precision = "ieee"
        with convolving_in("tf32"):
            assert cudnn.allow_tf32
        assert conv.fp32_precision == "ieee"
    finally:
        conv.fp32_precision = own


@pytest.mark.parametrize("made", [lambda name: ImageField(1, 4, arithmetic=name), lambda name: convolving(name)])
def test_an_unknown_arithmetic_is_refused(made: Callable[[str], Any]) -> None:
    flags = cudnn_flags()
    with pytest.raises(UnknownNameError, match="there is no arithmetic 'bf16': did you mean 'bfloat16'"):
        made("bf16")
    assert cudnn_flags() == flags


def convolving(name: str) -> None:
    with convolving_in(name):
        pass


def test_spheres_are_not_rounded() -> None:
    with pytest.raises(
        UsageError, match=r"arithmetic tf32 is for images \(mnist, cifar10, mnist-patches\), and the data are 'sphere2'"
    ):
        architecture("sphere2", SOLVERS[0], arithmetic="tf32")


def test_an_audit_rounds_nothing_says_so_and_leaves_the_model_as_it_was() -> None:
    field = a_field(arithmetic="bfloat16", dtype=torch.float32)
    model = nn.Sequential(ODEBlock(field, SOLVERS[0]), nn.Flatten(), nn.Linear(60, 2))
    x = pictures(40).float()
    plain = a_field(dtype=torch.float32)
    twin = nn.Sequential(ODEBlock(plain, SOLVERS[0]), model[1], model[2])
    with torch.no_grad():
        labels = twin(x).argmax(dim=1)
    verdict, wanted = (audit(m, (x, labels), evidence=False) for m in (model, twin))
    assert verdict.table == wanted.table
    assert not wanted.notes
    assert "made to round its products to bfloat16, and audited without" in verdict.notes[0]
    assert field.arithmetic == arithmetic_of(model) == "bfloat16"


def test_a_model_is_unrounded_for_a_scope_only() -> None:
    model = architecture("mnist", SOLVERS[0], arithmetic="bfloat16")
    with suppress(ZeroDivisionError), unrounded(model), using(model, SOLVERS[1]):
        assert arithmetic_of(model) == "float32"
        raise ZeroDivisionError
    assert arithmetic_of(model) == "bfloat16"
