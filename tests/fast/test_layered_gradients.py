"""Gradients of networks of linear layers, solved in C: again, in batches, with hooks, in threads; and their memory."""

import gc
import weakref
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from tests.fast.layers import DOPRI54, EULER, RK4, SOLVERS, Unknown, network
from tests.fast.spheres import DOUBLE, assert_same, samples, solved
from windermere.errors import UsageError
from windermere.fast.cpu import compiled, native_call
from windermere.nn import Autonomous, ODEBlock
from windermere.solvers import fast_paths, solve, torch_modes


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if compiled.library("double", "rows") is None:
        pytest.skip("no C compiler here")


def curvature(field: nn.Module, z: Tensor, solver: Any) -> list[Tensor]:
    """Gradients of a penalty on gradients."""
    z, weights = z.clone().requires_grad_(), list(field.parameters())
    end = torch.as_tensor(solve(field, z, solver).final)
    first = torch.autograd.grad(end.square().sum(), [z, *weights], create_graph=True)
    return list(torch.autograd.grad(sum(g.square().sum() for g in first), [z, *weights]))  # type: ignore[arg-type]


@SOLVERS
def test_gradients_can_be_differentiated_again(solver: Any, taken: list[str]) -> None:
    net, z = network(2, 4, 2), samples(3, 2)
    assert_same(curvature(Autonomous(net), z, solver), curvature(Unknown(net), z, solver))
    assert taken[1:] == ["back"]  # by way of the end; the first gradient is on the tape


def test_so_they_are_by_finite_differences() -> None:
    net, names = network(2, 3, 2), [f"field.network.{name}" for name, _ in network(2, 3, 2).named_parameters()]
    block, inputs = ODEBlock(Autonomous(net), RK4), (samples(3, 2).requires_grad_(), *net.parameters())

    def end(z: Tensor, *weights: Tensor) -> Any:
        return functional_call(block, dict(zip(names, weights, strict=True)), z)

    assert torch.autograd.gradcheck(end, inputs)
    assert torch.autograd.gradgradcheck(end, inputs)


@SOLVERS
def test_cotangents_may_come_in_a_batch(solver: Any) -> None:
    net, many = network(2, 4, 2), torch.eye(6, dtype=DOUBLE).view(6, 3, 2)
    found = []
    for field in (Autonomous(net), Unknown(net)):
        end: Any = solve(field, z := samples(3, 2).requires_grad_(), solver).final
        found.append(list(torch.autograd.grad(end, [z, *net.parameters()], many, is_grads_batched=True)))
    assert_same(found[0], found[1])


def test_a_way_back_that_is_compiled_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by torch._dynamo's compiled autograd, which knows nothing of the memory that a call in C makes use of."""
    net = network(2, 4, 2)
    end: Any = solve(Autonomous(net), samples(3, 2), EULER).final
    wanted = torch.autograd.grad(end.sum(), list(net.parameters()), retain_graph=True)
    monkeypatch.setattr(torch_modes, "is_compiling", lambda: True)
    monkeypatch.delattr(native_call.Call, "run")
    assert_same(list(torch.autograd.grad(end.sum(), list(net.parameters()))), list(wanted))


@SOLVERS
@pytest.mark.parametrize("again", [False, True])
def test_weights_may_be_made_of_the_state(solver: Any, again: bool) -> None:
    found = []
    for kind in (Autonomous, Unknown):
        block, x = ODEBlock(kind(network(2, 4, 2)), solver), samples(4, 2).requires_grad_()
        end: Any = functional_call(block, {"field.network.0.weight": (z := x.sin()) * z.mean()}, z)
        found.append(list(torch.autograd.grad(end.square().sum(), x, create_graph=again)))
    assert_same(found[0], found[1])


@pytest.mark.parametrize("again", [False, True])
def test_a_hook_on_a_weight_is_called_once(again: bool) -> None:
    net, called = network(2, 4, 2), list[Tensor]()
    net[0].weight.register_hook(called.append)
    end: Any = solve(Autonomous(net), samples(3, 2), EULER).final
    torch.autograd.grad(end.sum(), list(net.parameters()), create_graph=again)
    assert len(called) == 1


def test_signs_that_pytorch_put_off_are_not_forgotten() -> None:
    net, z = network(1, 3, 1), torch.tensor([[1 + 2j]], dtype=torch.complex128).conj().imag
    assert z.is_neg()
    found = []
    for field in (Autonomous(net), Unknown(net)):
        end: Any = solve(field, z, EULER).final
        turned = (torch.complex(end, end).conj() * (1 + 3j)).real  # whose gradient is an imaginary part of a conjugate
        found.append([end, *torch.autograd.grad(turned.sum(), list(net.parameters()))])
    assert_same(found[0], found[1])


def test_weights_that_change_before_the_way_back_are_an_error_as_ever() -> None:
    net = network(2, 4, 2)
    end: Any = solve(Autonomous(net), samples(3, 2), EULER).final
    with torch.no_grad():
        net[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        end.sum().backward()


class Driven(nn.Module):
    """A network that is told by a buffer what drives it."""

    drive: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.network = network(2, 4, 2)
        self.register_buffer("drive", torch.zeros(2, dtype=DOUBLE))

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.network(z + self.drive)


@pytest.mark.parametrize("solver", [EULER, DOPRI54], ids=str)
def test_buffers_and_states_may_change_between_several_solves_and_their_way_back(solver: Any, taken: list[str]) -> None:
    field, z, found = Driven(), samples(3, 2), []
    for fast in (True, False):
        with fast_paths(fast):
            ends = torch.cat([_end_of_one(field, solver, z, drive) for drive in (1.0, 2.0, 3.0)])
        found.append([ends, *torch.autograd.grad(ends.square().sum(), list(field.parameters()))])
    assert_same(found[0], found[1])
    assert len(taken) == 6


def _end_of_one(field: Driven, solver: Any, z: Tensor, drive: float) -> Tensor:
    z.fill_(0.5 * drive)
    field.drive.fill_(drive)
    return torch.as_tensor(solve(field, z, solver).final)


def test_a_second_derivative_says_that_it_needs_a_buffer_as_it_was() -> None:
    field = Driven()
    end: Any = solve(field, samples(3, 2), EULER).final
    field.drive.fill_(1.0)
    with pytest.raises(UsageError, match=r"a tensor of shape \(2,\) that the solve depends on was changed in place"):
        torch.autograd.grad(end.square().sum(), list(field.parameters()), create_graph=True)


def test_the_same_bits_come_from_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_call, "WORTH_A_THREAD", 1)
    net, z = network(2, 20, 2), samples(50, 2)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(solved(Autonomous(net), z, EULER, list(net.parameters())))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_threads_may_go_back_through_one_solve_at_once() -> None:
    net = network(4, 64, 64, 4)
    end: Any = solve(Autonomous(net), samples(200, 4), RK4).final
    wanted = torch.autograd.grad(loss := end.square().sum(), list(net.parameters()), retain_graph=True)
    same = []

    def back() -> None:
        for _ in range(20):
            found = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
            same.append(all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True)))

    threads = [Thread(target=back) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 60


def test_the_memory_of_a_solve_goes_with_its_end_and_waits_for_no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []
    on_tape = native_call.Call.on_tape

    def noted(self: Any, *given: Any) -> Tensor:
        held.append(weakref.ref(self))
        return on_tape(self, *given)

    monkeypatch.setattr(native_call.Call, "on_tape", noted)
    gc.disable()
    try:
        for solver in (EULER, DOPRI54):
            final: Any = solve(Autonomous(network(2, 5, 2)), samples(3, 2), solver).final
            assert held[-1]() is not None
            del final
            assert held[-1]() is None
    finally:
        gc.enable()


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Weak references to the memory of each solve on the tape."""
    held: list[Any] = []
    on_tape = native_call.Call.on_tape

    def noted(self: Any, *given: Any) -> Tensor:
        held.append(weakref.ref(self.memory))
        return on_tape(self, *given)

    monkeypatch.setattr(native_call.Call, "on_tape", noted)
    return held


@pytest.mark.parametrize("solver", [EULER, DOPRI54], ids=str)
def test_the_memory_of_a_solve_goes_with_its_way_back(solver: Any, memories: list[Any]) -> None:
    end: Any = solve(Autonomous(network(2, 5, 2)), samples(3, 2), solver).final
    end.sum().backward(retain_graph=True)
    assert memories[0]() is not None
    end.sum().backward()
    assert memories[0]() is None


@pytest.mark.parametrize("solver", [EULER, DOPRI54], ids=str)
def test_a_checkpoint_around_a_solve_keeps_none_of_its_memory(solver: Any, memories: list[Any]) -> None:
    block = ODEBlock(Autonomous(net := network(2, 5, 2)), solver)
    end: Any = checkpoint(block, samples(3, 2), use_reentrant=False)
    assert memories[0]() is None
    found = torch.autograd.grad(end.sum(), list(net.parameters()))
    wanted = torch.autograd.grad(block(samples(3, 2)).sum(), list(net.parameters()))
    assert_same(list(found), list(wanted))


def test_the_memory_of_a_solve_may_be_packed_away() -> None:
    """And come back where no vector may lie."""
    block, found = ODEBlock(Autonomous(net := network(2, 5, 2)), EULER), []
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda x: (torch.cat([x.new_zeros(1), x.detach().flatten()]), x.shape), lambda kept: kept[0][1:].view(kept[1])
    )
    for packed in (False, True):
        if packed:
            with hooks:
                end = block(samples(3, 2))
        else:
            end = block(samples(3, 2))
        found.append(list(torch.autograd.grad(end.sum(), list(net.parameters()))))
    assert_same(found[0], found[1])
