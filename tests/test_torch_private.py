"""Private names of PyTorch tell what we ask them for, and so do public ones that are young; where one is missing,
solves, audits and trainings are right."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import BaseTorchFunctionMode

import windermere as wm
from tests.fast.layers import DOPRI54, RK4, Unknown, network
from tests.fast.spheres import assert_same, samples, solved, sphere_field
from tests.processes import python
from tests.torches import TORCH, needs_compile, needs_torch
from windermere import _torch_private
from windermere.fast.cpu import native
from windermere.paper.training import Ensemble
from windermere.paper.training.checkpoint import make_optimizer, update
from windermere.paper.training.classifying import classify_and_differentiate

pytestmark = needs_torch(4, "that has nearly all of them")
SOURCE = Path(_torch_private.__file__)
NAMES = [
    "torch._C._functorch.peek_interpreter_stack",
    "torch._C._functorch.get_interpreter_stack",
    "torch._C._functorch.is_legacy_batchedtensor",
    "torch._C._get_tracing_state",
    "torch._C._is_any_autocast_enabled",
    "torch._C._len_torch_dispatch_stack",
    "torch._C._len_torch_function_stack",
    "torch._C._get_function_stack_at",
    "torch.utils._device.DeviceContext",
    "torch.utils._python_dispatch.TorchDispatchMode",
    "torch._C._autograd._top_saved_tensors_default_hooks",
    "torch.nn.modules.module._has_any_global_hook",
    "torch.autograd.forward_ad._current_level",
    "torch._foreach_add_",
    "torch._amp_foreach_non_finite_check_and_unscale_",
    "torch._log_softmax_backward_data",
    "torch._fused_adam_",
]
GLOBAL_HOOKS = [
    f"torch.nn.modules.module._global_{kind}_hooks" for kind in ("forward", "forward_pre", "backward", "backward_pre")
]
HOOKED = "torch.nn.modules.module._has_any_global_hook"
YOUNG = {
    "torch.compiler.is_compiling": 3,
    "torch.compiler.is_dynamo_compiling": 3,
    "torch.compiler.disable": 1,
    "torch.get_autocast_dtype": 4,
    "torch.autograd.graph.get_gradient_edge": 1,
    "torch.accelerator.current_accelerator": 6,
    HOOKED: 8,
}
"""A minor release of PyTorch 2 that has it, in most cases the first."""
PATHS = [path for path in NAMES if YOUNG.get(path, 0) <= TORCH[1]]
KEPT = (HOOKED, "torch.compiler.is_compiling")  # what PyTorch 2.0 to 2.2 had in its place warns today
PUBLIC = [path for path, minor in YOUNG.items() if path not in KEPT and minor <= TORCH[1]]
LATELY = [path for path in PATHS if path == HOOKED]
OF_TENSORS = ["_version", "_backward_hooks", "_post_accumulate_grad_hooks"]
PRIVATE = re.compile(r"_[a-zA-Z]\w*")
Without: TypeAlias = Callable[..., Any]
FUNCTIONS = pytest.mark.filterwarnings("ignore:.torch.jit.script. is")  # PyTorch's own, of itself
DEPRECATED = pytest.mark.filterwarnings("ignore:.*autocast.* is deprecated")  # since they were asked for a device
TRACING = pytest.mark.filterwarnings("ignore:.torch.jit.trace. is", "ignore:.torch.jit.trace_method. is")


def load_without(*paths: str) -> ModuleType:
    """The file as it is on a PyTorch that lacks these names."""
    spec = spec_from_file_location("torch_private_of_another", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    with pytest.MonkeyPatch.context() as hidden:
        for path in paths:
            hidden.delattr(path)
        spec.loader.exec_module(module := module_from_spec(spec))
    return module


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Without:
    """Let the library run as on a PyTorch that lacks names of these paths, or properties of tensors."""

    def missing(self: Tensor) -> Any:
        raise AttributeError

    def hide(*names: str) -> ModuleType:
        for name in set(names) & set(OF_TENSORS):
            written = getattr(torch._C.TensorBase, name)  # by PyTorch itself
            monkeypatch.setattr(torch.Tensor, name, property(missing, written.__set__))
        other = load_without(*(name for name in names if name not in OF_TENSORS))
        for module in [m for name, m in sys.modules.items() if name.startswith("windermere.")]:
            for name, value in list(vars(module).items()):
                if module is not _torch_private and value is vars(_torch_private).get(name, other):
                    monkeypatch.setattr(module, name, vars(other)[name])
        return other

    return hide


EACH = pytest.mark.parametrize("name", [*PATHS, *OF_TENSORS])


# Where they live


def private_names(file: Path) -> Iterator[str]:
    """Private names that a file takes from PyTorch or finds on something that is not its own."""
    tree = ast.parse(file.read_text())
    own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    own |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            yield from filter(PRIVATE.fullmatch, [*str(node.module).split("."), *(alias.name for alias in node.names)])
        elif isinstance(node, ast.Import):
            yield from (p for a in node.names if a.name.startswith("torch.") for p in a.name.split(".") if p[0] == "_")
        elif isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr) and node.attr not in own:
            yield node.attr


def test_no_other_file_takes_a_private_name_from_pytorch() -> None:
    others = {"_replace", "_exit", "_grid_constructor_from_step_size"}  # of named tuples, of os and of torchdiffeq
    found = {
        f"{file.relative_to(SOURCE.parent)}: {name}"
        for file in SOURCE.parent.rglob("*.py")
        if file != SOURCE
        for name in private_names(file)
        if name not in others
    }
    assert not found


def test_these_are_the_private_names_of_that_file() -> None:
    named = re.findall(r'_find\(\s*"([\w.]+)"', SOURCE.read_text())
    named = [*named, "torch.autograd.forward_ad._current_level", "torch.get_autocast_dtype"]
    others = {"torch._utils.is_compiling", "torch._dynamo.exc.TorchDynamoException"}
    assert {*named} == {*NAMES, *YOUNG, *GLOBAL_HOOKS, *others}
    of_modules = {"_forward_hooks", "_forward_pre_hooks", "_backward_pre_hooks"}
    assert set(private_names(SOURCE)) == {"_current_level", *OF_TENSORS, *of_modules}


@pytest.mark.parametrize("path", [*PATHS, *PUBLIC, *GLOBAL_HOOKS])
def test_this_pytorch_has_each_of_them(path: str) -> None:
    with pytest.MonkeyPatch.context() as hidden:
        hidden.delattr(path)  # which refuses what is not there


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


MODES = [path for path in PATHS if "_stack" in path and "_functorch" not in path]


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


# Without them


def end_of(field: Any, z: Tensor) -> Any:
    return wm.solve(field, z, RK4).final


def answers() -> list[Tensor]:
    """Ends and gradients of solves that have fast paths, by all ways."""
    found: list[Tensor] = []
    net, sphere = network(2, 6, 2), sphere_field(2)
    for solver in (RK4, DOPRI54):
        for gradient in ("backprop", "checkpoint", "adjoint"):
            for field in (wm.Autonomous(net), sphere):
                found += solved(field, samples(3, 2), solver, [*field.parameters()], gradient=gradient)
    return found


@EACH
def test_solves_are_right_without(without: Without, name: str) -> None:
    wanted = answers()
    without(name)
    assert_same(answers(), wanted, closeness=1e-9)


def test_solves_are_right_without_what_is_young(without: Without) -> None:
    wanted = answers()
    without(*PUBLIC)
    assert_same(answers(), wanted, closeness=1e-9)


@pytest.mark.parametrize("name", ["torch._C._functorch.peek_interpreter_stack", "torch._C._get_tracing_state", *MODES])
def test_where_somebody_may_look_no_solve_is_done_in_c(
    monkeypatch: pytest.MonkeyPatch, without: Without, name: str
) -> None:
    monkeypatch.setattr(native, "walk_in_c", lambda *_: pytest.fail("a solve in C"))
    without(name)
    net, z = network(2, 6, 2), samples(3, 2)
    assert_same(solved(wm.Autonomous(net), z, RK4, []), solved(Unknown(net), z, RK4, []))


@FUNCTIONS
@EACH
def test_derivatives_inside_of_transforms_and_in_forward_mode_are_right_without(without: Without, name: str) -> None:
    z, direction = samples(3, 2), samples(3, 2).cos()
    ends = [partial(end_of, field) for field in (wm.Autonomous(network(2, 6, 2)), sphere_field(2))]
    jacobians = [torch.autograd.functional.jacobian(end, z) for end in ends]  # type: ignore[no-untyped-call]
    without(name)
    for end, jacobian in zip(ends, jacobians, strict=True):
        along = (jacobian * direction).sum(dim=(2, 3))
        torch.testing.assert_close(torch.func.jacrev(end)(z), jacobian)
        torch.testing.assert_close(torch.func.jvp(end, (z,), (direction,))[1], along)
        with forward_ad.dual_level():
            dual = end(forward_ad.make_dual(z, direction))  # type: ignore[no-untyped-call]
            torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, along)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "name", [name for name in [*PATHS, *OF_TENSORS] if not name.endswith("peek_interpreter_stack")]
)
def test_a_batch_of_solves_is_solved_as_one_by_one_without(without: Without, name: str) -> None:
    without(name)
    for field in (wm.Autonomous(network(2, 6, 2)), sphere_field(2)):
        end, z = partial(end_of, field), samples(4, 3, 2)
        torch.testing.assert_close(torch.func.vmap(end)(z), torch.stack([end(x) for x in z]))


def test_a_batch_of_solves_that_is_not_known_to_be_one_is_refused_by_pytorch(without: Without) -> None:
    without("torch._C._functorch.peek_interpreter_stack")
    with pytest.raises(RuntimeError, match="vmap"):
        torch.func.vmap(partial(end_of, wm.Autonomous(network(2, 6, 2))))(samples(4, 3, 2))


@EACH
def test_all_gradients_at_once_are_those_one_by_one_without(without: Without, name: str) -> None:
    without(name)
    z = samples(3, 2).requires_grad_()
    end = wm.solve(wm.Autonomous(network(2, 6, 2)), z, RK4).final
    assert isinstance(end, Tensor)
    directions = torch.eye(6, dtype=z.dtype).view(6, 3, 2)
    wanted = torch.stack([torch.autograd.grad(end, z, d, retain_graph=True)[0] for d in directions])
    torch.testing.assert_close(torch.autograd.grad(end, z, directions, is_grads_batched=True)[0], wanted)


def trained() -> list[Tensor]:
    """Parameters after three iterations of training."""
    torch.manual_seed(0)
    members = [
        nn.Sequential(wm.ODEBlock(sphere_field(2, s), RK4), nn.Flatten(), nn.Linear(2, 2).double()) for s in (0, 1)
    ]
    ensemble, labels = Ensemble(members), torch.arange(10).view(2, 5) % 2
    optimizer = make_optimizer("adam", ensemble.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        classify_and_differentiate(ensemble, ensemble.features(samples(2, 5, 2), [RK4] * 2), labels)
        update(optimizer)
    return [p.detach() for p in ensemble.parameters()]


@EACH
def test_training_is_the_same_without(without: Without, name: str) -> None:
    wanted = trained()
    without(name)
    assert_same(trained(), wanted, closeness=1e-9)


def audited() -> Any:
    torch.manual_seed(0)
    block = wm.ODEBlock(wm.Autonomous(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))), RK4)
    model, x = nn.Sequential(block, nn.Linear(2, 2)), samples(40, 2).float()
    return wm.audit(model, (x, (x[:, 0] > 0).long()))


@DEPRECATED
def test_the_verdict_of_an_audit_is_the_same_without_any_of_them(without: Without) -> None:
    wanted = audited()
    without(*PATHS, *PUBLIC, *OF_TENSORS)
    found = audited()
    assert (found.outcome, found.sentence, found.safe) == (wanted.outcome, wanted.sentence, wanted.safe)
    assert [(line.solver, line.metric) for line in found.table] == [(line.solver, line.metric) for line in wanted.table]


IMPORTING = """
import importlib, sys
import torch

kept = []
for path in {paths!r}:
    place, name = path.rsplit(".", 1)
    kept.append((importlib.import_module(place), name, getattr(importlib.import_module(place), name)))
for owner, name, _ in kept:
    delattr(owner, name)
import windermere as wm
import windermere.paper.training
for owner, name, value in kept:  # which PyTorch itself needs
    setattr(owner, name, value)
print(wm.solve(lambda t, z: -z, torch.ones(1), wm.FixedStep("rk4", step=1 / 8)).final.item())
"""


def test_the_library_is_imported_and_solves_where_pytorch_has_none_of_them() -> None:
    with python("-c", IMPORTING.format(paths=[*PATHS, *PUBLIC, *GLOBAL_HOOKS]), stdout=-1, stderr=-1) as process:
        out, err = process.communicate()
    assert not err
    assert float(out) == pytest.approx(torch.e**-1, rel=1e-5)
