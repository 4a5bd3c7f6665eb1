"""The classifier, its losses and their gradients in C, beside autograd in float64 and PyTorch's operations."""

import platform
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.fast.small_stack import succeeds
from windermere.fast.cpu import compiled
from windermere.paper.fast import classifier
from windermere.paper.fast.classifier import WEIGHTS_UP_TO, Classified, classify_in_c
from windermere.paper.training.classifying import _classified
from windermere.solvers import fast_paths

NAN, INF = float("nan"), float("inf")
SHAPES = pytest.mark.parametrize(
    ("members", "samples", "inputs", "classes"),
    [(1, 128, 2, 2), (3, 37, 2, 2), (2, 1, 10, 2), (1, 15, 1, 1), (2, 16, 3, 10), (5, 17, 128, 2), (1, 1000, 64, 4)],
)
"""Those of Sphere2 first; one sample; one class; tiles that are full and that are not; the most weights."""


class Given(NamedTuple):
    """What is classified, and by what."""

    weight: Tensor
    bias: Tensor
    x: Tensor
    labels: Tensor


@pytest.fixture(autouse=True)
def _compiler() -> None:
    if compiled.library("double", "sphere") is None:
        pytest.skip("no C compiler here")


@pytest.fixture
def _anew() -> Iterator[None]:
    for cached in (compiled.library, compiled.vector_bytes):
        cached.cache_clear()
    yield
    for cached in (compiled.library, compiled.vector_bytes):
        cached.cache_clear()


def given(members: int, samples: int, inputs: int, classes: int, dtype: torch.dtype = torch.float64) -> Given:
    generator = torch.Generator().manual_seed(0)
    shapes = (members, classes, inputs), (members, classes), (members, samples, inputs)
    weight, bias, x = (torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
    return Given(weight, bias, x, torch.randint(classes, (members, samples), generator=generator))


def in_c(asked: Given) -> Classified:
    found = classify_in_c(*asked)
    assert found is not None
    return found


def by_operations(asked: Given) -> Classified:
    tensors = {"weight": asked.weight, "bias": asked.bias}
    return _classified(nn.Linear(*asked.weight.shape[:0:-1]), tensors, asked.x, asked.labels)


def by_autograd(asked: Given) -> Classified:
    """In float64."""
    weight, bias, x = (t.double().clone().requires_grad_() for t in asked[:3])
    logits = x @ weight.mT + bias.unsqueeze(1)
    losses = F.cross_entropy(logits.transpose(1, 2), asked.labels, reduction="none").mean(1)
    return Classified(losses, logits, *torch.autograd.grad(losses.sum(), (weight, bias, x)))


def bounds(asked: Given) -> list[Tensor]:
    """How far roundings can take each result from the exact one, by member: so many, each of half an ulp.

    Logits are sums of products; a softmax and its logarithm hand their errors on at most twice, and have an exponential
    and a logarithm of a few ulp besides. Sums over samples go by lanes, 4 to 16 in a vector: each adds a rounding for
    each of its terms, and there is one more for each lane.
    """
    weight, bias, x = (t.double().abs() for t in asked[:3])
    inputs, classes, samples = weight.shape[2], weight.shape[1], x.shape[1]
    ulp = torch.finfo(asked.x.dtype).eps
    size = (x @ weight.mT + bias.unsqueeze(1)).amax((1, 2))
    logits = (inputs + 1) * ulp * size
    share = 2 * logits + (classes + 8) * ulp * (1 + size)  # of a sample's softmax or its logarithm
    terms = samples / 4 + 16
    losses, summed = share + terms * ulp * (1 + 2 * size), share + terms * ulp
    on_features = (classes * share + classes * ulp) / samples * weight.amax((1, 2))
    return [losses, logits, summed * x.amax((1, 2)), summed, on_features]


def assert_same_bits(one: Classified, other: Classified) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@SHAPES
def test_in_float32_it_is_as_close_to_the_exact_values_as_roundings_allow(
    members: int, samples: int, inputs: int, classes: int
) -> None:
    asked = given(members, samples, inputs, classes, torch.float32)
    for found, wanted, bound in zip(in_c(asked), by_autograd(asked), bounds(asked), strict=True):
        assert found.dtype == torch.float32
        assert found.shape == wanted.shape
        apart = (found.double() - wanted).abs().reshape(members, -1).amax(1)
        assert (apart <= bound).all()


@SHAPES
def test_in_float64_it_agrees_with_autograd(members: int, samples: int, inputs: int, classes: int) -> None:
    asked = given(members, samples, inputs, classes)
    for found, wanted in zip(in_c(asked), by_autograd(asked), strict=True):
        torch.testing.assert_close(found, wanted.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [30.0, 300.0, 3000.0])
def test_large_logits_overflow_nowhere(size: float) -> None:
    asked = given(2, 40, 2, 3)
    asked = asked._replace(weight=size * asked.weight)
    for found, wanted in zip(in_c(asked), by_autograd(asked), strict=True):
        torch.testing.assert_close(found, wanted.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_member_has_the_same_bits_in_any_company_and_with_any_number_of_threads(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = given(5, 37, 3, 4, dtype)
    together = in_c(asked)
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        for s in range(5):
            alone = in_c(Given(*(tensor[s : s + 1] for tensor in asked)))
            assert_same_bits(alone, Classified(*(tensor[s : s + 1] for tensor in together)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("where", [(0, 0, 0), (1, 16, 1), (1, 36, 0)])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("part", ["weight", "bias", "x"])
def test_what_is_not_finite_shows_where_it_does_in_pytorch(
    part: str, bad: float, where: tuple[int, int, int], dtype: torch.dtype
) -> None:
    asked = given(2, 37, 2, 3, dtype)
    tensor = getattr(asked, part)
    tensor[tuple(k % n for k, n in zip(where, tensor.shape, strict=False))] = bad
    for found, wanted in zip(in_c(asked), by_operations(asked), strict=True):
        torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("label", [0, 1, 2])
@pytest.mark.parametrize(
    "bias", [(INF, 0, 1), (-INF, 0, 1), (-INF, -INF, 0), (-INF,) * 3, (INF, INF, NAN), (3e38, -3e38, 0)]
)
def test_so_do_logits_of_which_some_are_infinite(bias: tuple[float, ...], label: int) -> None:
    asked = given(1, 5, 2, 3, torch.float32)
    asked.bias[0] = torch.tensor(bias)
    asked = asked._replace(labels=torch.full_like(asked.labels, label))
    for found, wanted in zip(in_c(asked), by_operations(asked), strict=True):
        torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("label", [-1, 3, -100, 2**32, 2**62, -(2**63)])
def test_a_label_of_no_class_is_left_for_pytorch_to_refuse(label: int) -> None:
    asked = given(2, 19, 2, 3)
    asked.labels[1, 18] = label
    assert classify_in_c(*asked) is None
    with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
        by_operations(asked)


def spread(x: Tensor) -> Tensor:
    """The same numbers with others between them."""
    return torch.stack([x, x + 1], dim=-1)[..., 0]


def imaginary(x: Tensor) -> Tensor:
    """The same numbers with their sign put off."""
    return torch.complex(x, -x).conj().imag


@pytest.mark.parametrize("laid", [spread, imaginary, lambda x: x.mT.contiguous().mT])
def test_features_may_lie_anyhow(laid: Callable[[Tensor], Tensor]) -> None:
    asked = given(2, 19, 2, 3)
    assert_same_bits(in_c(asked._replace(x=laid(asked.x))), in_c(asked))


def test_members_may_share_features_and_labels() -> None:
    asked = given(3, 19, 2, 3)
    x, labels = asked.x[:1].expand(3, 19, 2), asked.labels[:1].expand(3, 19)
    copied = asked._replace(x=x.contiguous(), labels=labels.contiguous())
    assert_same_bits(in_c(asked._replace(x=x, labels=labels)), in_c(copied))


def test_what_it_finds_is_on_no_tape_and_laid_out_as_its_parameter() -> None:
    asked = given(2, 19, 2, 3)
    with torch.no_grad():
        found = in_c(asked._replace(weight=asked.weight.requires_grad_(), bias=asked.bias.requires_grad_()))
    assert not any(tensor.requires_grad for tensor in found)
    assert all(tensor.is_contiguous() for tensor in found)


@pytest.mark.parametrize(
    "other",
    [
        lambda asked: asked._replace(labels=asked.labels.int()),
        lambda asked: asked._replace(labels=asked.labels[:, 1:]),
        lambda asked: asked._replace(labels=asked.labels[:1]),
        lambda asked: asked._replace(labels=asked.labels[:, :0], x=asked.x[:, :0]),
        lambda asked: asked._replace(x=asked.x.float()),
        lambda asked: asked._replace(x=asked.x[..., :1]),
        lambda asked: asked._replace(bias=asked.bias[:, :2]),
        lambda asked: asked._replace(weight=spread(asked.weight)),
        lambda asked: given(2, 19, 2, 3, torch.bfloat16),
        lambda asked: given(1, 3, WEIGHTS_UP_TO // 4 + 1, 4),
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_pytorch(other: Callable[[Given], Given]) -> None:
    assert classify_in_c(*other(given(2, 19, 2, 3))) is None


def test_so_is_what_somebody_wants_to_see_or_to_round(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = given(2, 19, 2, 3)
    with fast_paths(False):
        assert classify_in_c(*asked) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert classify_in_c(*asked) is None
    with torch.overrides.TorchFunctionMode():
        assert classify_in_c(*asked) is None
    monkeypatch.setattr(classifier, "library", lambda *_: None)
    assert classify_in_c(*asked) is None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="vectors of several sizes are x86's")
@pytest.mark.usefixtures("_anew")
@pytest.mark.parametrize("without", ["-mno-avx512f", "-mno-avx"])
def test_a_processor_with_shorter_vectors_comes_to_the_same(without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "OPTIONS", (*compiled.OPTIONS, without))
    for dtype in (torch.float32, torch.float64):
        asked = given(2, 37, 3, 10, dtype)
        for found, wanted, bound in zip(in_c(asked), by_autograd(asked), bounds(asked), strict=True):
            assert ((found.double() - wanted).abs().reshape(2, -1).amax(1) <= bound).all()


LARGEST = f"""
import threading, torch
from windermere.fast.cpu.compiled import library
from windermere.paper.fast.classifier import classify_in_c
library("double", "sphere")
found = []
def work():
    for classes in (1, 16, {WEIGHTS_UP_TO}):
        x, weight = torch.ones(1, 40, {WEIGHTS_UP_TO} // classes), torch.ones(1, classes, {WEIGHTS_UP_TO} // classes)
        labels = torch.zeros(1, 40, dtype=torch.int64)
        found.append(classify_in_c(weight.double(), weight[..., 0].double(), x.double(), labels))
threading.stack_size(128 << 10)
thread = threading.Thread(target=work)
thread.start()
thread.join()
raise SystemExit(len(found) != 3 or None in found)
"""


def test_the_largest_classifier_fits_on_a_small_stack() -> None:
    """That of a thread where C is musl's: 128 KB."""
    assert succeeds(LARGEST)
