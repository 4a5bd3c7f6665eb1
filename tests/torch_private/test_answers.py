"""Private names of PyTorch tell what we ask them for, and so do public ones that are young."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import BaseTorchFunctionMode

from tests.fast.spheres import samples
from tests.torch_private.names import (
    DEPRECATED,
    FUNCTIONS,
    GLOBAL_HOOKS,
    HOOKED,
    MODES,
    OF_TENSORS,
    PATHS,
    PUBLIC,
    Without,
    load_without,
)
from tests.torches import needs_compile, needs_torch
from windermere import _torch_private
from windermere.paper.training.checkpoint import make_optimizer, update

pytestmark = needs_torch(4, "that has nearly all of them")
LATELY = [path for path in PATHS if path == HOOKED]
TRACING = pytest.mark.filterwarnings("ignore:.torch.jit.trace. is", "ignore:.torch.jit.trace_method. is")


# What they tell


def inside(transform: Callable[..., Any], ask: Callable[[], Any]) -> Any:
    """What is answered inside of a transform of torch.func."""
    heard: list[Any] = []

    def function(x: Tensor) -> Tensor:
        heard.append(ask())
        return x.sum()

    transform(function)(torch.ones(2))
    return heard[0]


def nested(function: Any) -> Any:
    return torch.func.vmap(torch.func.grad(function))


@pytest.mark.parametrize(
    ("transform", "names"),
    [(torch.func.vmap, {"Vmap"}), (torch.func.grad, {"Grad"}), (nested, {"Vmap", "Grad"}), (lambda f: f, set())],
)
def test_transforms_in_force_are_known_by_name(transform: Any, names: set[str]) -> None:
    assert inside(transform, _torch_private.transforms) == names
    assert (inside(transform, _torch_private.innermost_transform) is not None) == bool(names)


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.grad])
def test_where_only_one_transform_is_known_it_may_be_any_and_where_none_is_none_is_named(transform: Any) -> None:
    one = load_without("torch._C._functorch.get_interpreter_stack")
    assert inside(transform, one.transforms) == {"Vmap", "Grad"}
    assert one.transforms() == set()
    none = load_without("torch._C._functorch.peek_interpreter_stack")
    assert inside(transform, none.transforms) == set()
    assert none.innermost_transform() is none.PERHAPS


@FUNCTIONS
@pytest.mark.parametrize("hidden", [[], ["torch.autograd.forward_ad._current_level"]], ids=["with it", "without it"])
def test_forward_mode_is_known(hidden: list[str]) -> None:
    module = load_without(*hidden)
    assert not module.is_forward_mode()
    with forward_ad.dual_level():
        assert module.is_forward_mode()
    with torch.inference_mode():
        assert not module.is_forward_mode()
    assert inside(lambda f: lambda x: torch.func.jvp(f, (x,), (x,)), module.is_forward_mode)
    assert not inside(torch.func.grad, module.is_forward_mode)


@TRACING
@pytest.mark.parametrize("hidden", [[], ["torch._C._get_tracing_state"]], ids=["with it", "without it"])
def test_a_trace_is_known_and_without_it_there_may_be_one(hidden: list[str]) -> None:
    module, heard = load_without(*hidden), []
    assert (module.tracing_state() is None) != bool(hidden)

    def function(x: Tensor) -> Tensor:
        heard.append(module.tracing_state())
        return x + 1

    torch.jit.trace(function, torch.ones(2), check_trace=False)  # type: ignore[no-untyped-call]
    assert all(state is not None for state in heard)
    assert heard


@pytest.mark.parametrize("hidden", [[], ["torch._C._is_any_autocast_enabled"]], ids=["with it", "without it"])
def test_autocast_is_known_and_without_it_there_may_be_one(hidden: list[str]) -> None:
    module = load_without(*hidden)
    assert module.is_any_autocast_enabled() == bool(hidden)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert module.is_any_autocast_enabled()


@pytest.mark.parametrize("hidden", [[], *([path] for path in MODES)], ids=str)
def test_modes_are_known_and_without_one_of_the_names_there_may_be_one(hidden: list[str]) -> None:
    module = load_without(*hidden)
    assert module.is_in_a_mode() == bool(hidden)
    from torch.utils.flop_counter import FlopCounterMode  # since PyTorch 2.1

    with FlopCounterMode(display=False):
        assert module.is_in_a_mode()
    with BaseTorchFunctionMode():
        assert module.is_in_a_mode()
    with torch.device("cpu"):
        assert module.is_in_a_mode() == bool(hidden)


def test_a_default_device_is_no_mode_unless_it_cannot_be_told_from_one() -> None:
    module = load_without("torch.utils._device.DeviceContext")
    assert not module.is_in_a_mode()
    with torch.device("cpu"):
        assert module.is_in_a_mode()


@pytest.mark.parametrize("batched", [False, True])
def test_gradients_that_autograd_batches_are_known_and_without_it_all_may_be(batched: bool) -> None:
    x, heard, unknown = torch.ones(2, requires_grad=True), [], []
    other = load_without("torch._C._functorch.is_legacy_batchedtensor")

    def ask(gradient: Tensor) -> None:
        heard.append(_torch_private.is_batched_by_autograd(gradient))
        unknown.append(other.is_batched_by_autograd(gradient))

    end = x * 2
    end.register_hook(ask)  # type: ignore[no-untyped-call]
    torch.autograd.grad(end, x, torch.eye(2) if batched else torch.ones(2), is_grads_batched=batched)
    assert heard == [batched]
    assert unknown == [True]


def test_writing_to_a_tensor_is_counted_but_in_inference_mode() -> None:
    x = torch.zeros(2)
    before = _torch_private.times_written(x)
    x.view(2).add_(1)
    assert before is not None
    assert _torch_private.times_written(x) == before + 1
    with torch.inference_mode():
        assert _torch_private.times_written(torch.zeros(2)) is None


@pytest.mark.parametrize("method", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_tensors_are_known(method: str) -> None:
    x = torch.zeros(2, requires_grad=True)
    assert not _torch_private.has_hooks(x)
    handle = getattr(x, method)(lambda _: None)
    assert _torch_private.has_hooks(x)
    handle.remove()
    assert not _torch_private.has_hooks(x)


def test_hooks_of_tensors_are_left_out_for_a_while() -> None:
    x, calls = torch.ones(2, requires_grad=True), list[int]()
    handle = x.register_hook(lambda _: calls.append(1))  # type: ignore[no-untyped-call]
    for wanted in ([], [1]):
        with _torch_private.without_hooks([x] if not wanted else []):
            torch.autograd.grad(x.sum(), x)
        assert calls == wanted
    handle.remove()
    assert not _torch_private.has_hooks(x)


def test_what_a_tensor_does_not_tell_is_perhaps(without: Without) -> None:
    without(*OF_TENSORS)
    assert _torch_private.times_written(torch.zeros(2)) is None
    assert _torch_private.has_hooks(torch.zeros(2))


HOOKS = ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"]


@pytest.mark.parametrize("method", [*HOOKS, "register_full_backward_pre_hook"])
def test_hooks_of_modules_are_known(method: str) -> None:
    module = nn.Linear(2, 2)
    assert not _torch_private.is_hooked(module)
    handle = getattr(module, method)(lambda *_: None)
    assert _torch_private.is_hooked(module)
    handle.remove()
    assert not _torch_private.is_hooked(module)


def test_hooks_of_all_modules_are_known_and_where_a_module_does_not_tell_there_may_be_one() -> None:
    module = nn.Linear(2, 2)
    older, unknown = load_without(*LATELY), load_without(*LATELY, GLOBAL_HOOKS[0])
    handle = register_module_forward_hook(lambda *_: None)
    assert all(private.is_hooked(module) for private in (_torch_private, older, unknown))
    handle.remove()
    assert [private.is_hooked(module) for private in (_torch_private, older, unknown)] == [False, False, True]
    del module._backward_pre_hooks
    assert _torch_private.is_hooked(module)


# Public names that are young


@needs_compile
@pytest.mark.parametrize("hidden", [[], PUBLIC], ids=["with them", "without them"])
def test_code_knows_that_it_is_compiled_and_can_be_left_alone(hidden: list[str]) -> None:
    module = load_without(*hidden)
    torch.compiler.reset()
    assert not module.is_compiling()
    assert not module.is_dynamo_compiling()
    add = torch.compile(lambda x: x + module.is_compiling() + 2 * module.is_dynamo_compiling(), backend="eager")
    assert add(torch.zeros(1)).item() == 3
    if not hidden:
        alone = module.uncompiled(lambda x: x + module.is_compiling())
        assert torch.compile(lambda x: alone(x.clone()), backend="eager")(torch.zeros(1)).item() == 0


@DEPRECATED
def test_a_function_that_cannot_be_made_an_operation_stays_as_it_is() -> None:
    other = load_without("torch.library.custom_op")
    assert not other.HAS_OPERATIONS
    assert other.operation("windermere::nothing", len, shaped=len, back=len) is len


@pytest.mark.parametrize("hidden", [[], PUBLIC], ids=["with them", "without them"])
def test_autocast_is_known_by_device(hidden: list[str]) -> None:
    module = load_without(*hidden)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        asked = [module.is_autocast_enabled(device) for device in ("cpu", "cuda", "meta")]
        assert module.autocast_dtype("cpu") == torch.bfloat16
    assert asked == [True, False, False]
    assert not module.is_autocast_enabled("cpu")


def test_a_tensors_place_in_the_graph_is_found_without_a_name_for_it() -> None:
    other, leaf = load_without("torch.autograd.graph.get_gradient_edge"), samples(4, 3).requires_grad_()
    tensors = [leaf, leaf.sin(), *leaf.unbind(1)]
    with torch.no_grad():
        assert [other.gradient_edge(x) for x in tensors] == [_torch_private.gradient_edge(x) for x in tensors]


def test_the_device_of_this_machine_is_found_without_a_name_for_it() -> None:
    other = load_without(*(path for path in PUBLIC if "accelerator" in path))
    assert other.accelerator().type == ("cuda" if torch.cuda.is_available() else "cpu")


# Many small operations in one


@pytest.mark.parametrize("hidden", [[], ["torch._foreach_add_"]], ids=["with it", "without it"])
def test_each_tensor_gets_its_other_added_in_place(hidden: list[str]) -> None:
    sums = [torch.ones(2), torch.zeros(3)]
    load_without(*hidden).add_each(sums, [torch.full((2,), 4.0), torch.arange(3.0)])
    assert [x.tolist() for x in sums] == [[5, 5], [0, 1, 2]]


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("path", [None, "torch._amp_foreach_non_finite_check_and_unscale_"])
def test_what_is_not_finite_is_noted_and_stays_noted(path: str | None, value: float) -> None:
    module, bad, one = load_without(*filter(None, [path])), torch.zeros(1), torch.ones(1)
    tensors = [torch.ones(2, 2), torch.tensor([1.0, value, 3.0]), torch.ones(1)]
    module.note_non_finite(tensors, bad, one)
    assert bad.item() == (value != 0.0)
    assert tensors[2].item() == 1
    module.note_non_finite([torch.ones(2)], bad, one)
    assert bad.item() == (value != 0.0)


@pytest.mark.parametrize("path", [None, "torch._log_softmax_backward_data"])
@pytest.mark.parametrize("dim", [0, 1])
def test_the_way_back_through_log_softmax_is_autograds(path: str | None, dim: int) -> None:
    x, on_result = samples(4, 3).requires_grad_(), samples(4, 3).cos()
    result = x.log_softmax(dim)
    (wanted,) = torch.autograd.grad(result, x, on_result)
    found = load_without(*filter(None, [path])).log_softmax_back(on_result, result.detach(), dim)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("old", [False, True])
def test_numbers_of_a_vector_are_told_inside_of_transforms_too(monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    def without_memory(self: Tensor) -> Any:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    if old:
        monkeypatch.setattr(Tensor, "tolist", without_memory)
    told = inside(torch.func.grad, lambda: _torch_private.numbers_in(torch.tensor([0.5, 2.0])))
    assert told == [0.5, 2.0]


@pytest.mark.parametrize("hidden", [[], ["torch._fused_adam_"], ["torch._foreach_add_"]], ids=str)
def test_steps_of_adam_are_those_of_pytorch_to_the_bit(without: Without, hidden: list[str]) -> None:
    without(*hidden)
    ours, theirs = ([samples(3, 2).requires_grad_(), samples(5).requires_grad_()] for _ in range(2))
    optimizers = [make_optimizer("adam", x, lr=0.01) for x in (ours, theirs)]
    for _ in range(3):
        for x, y in zip(ours, theirs, strict=True):
            x.grad, y.grad = x.detach().sin(), y.detach().sin()
        update(optimizers[0])
        optimizers[1].step()
    assert all(torch.equal(x, y) for x, y in zip(ours, theirs, strict=True))
    counts = [[state["step"].item() for state in optimizer.state.values()] for optimizer in optimizers]
    assert counts == [[3, 3], [3, 3]]


def test_what_cannot_be_compiled_is_recognised_and_without_its_name_by_what_it_derives_from() -> None:
    from torch._dynamo.exc import TorchDynamoException, Unsupported

    assert _torch_private.compile_errors()[0] is TorchDynamoException
    assert issubclass(Unsupported, _torch_private.compile_errors())
    other = load_without()
    with pytest.MonkeyPatch.context() as hidden:
        hidden.delattr("torch._dynamo.exc.TorchDynamoException")
        assert issubclass(Unsupported, other.compile_errors())
        assert issubclass(FileNotFoundError, other.compile_errors())
