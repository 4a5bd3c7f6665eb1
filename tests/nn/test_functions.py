"""Models that are functions, and networks that a model uses without having registered them."""

import sys
import threading
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint

from tests.torches import needs_compile
from windermere import Autonomous, FixedStep, ODEBlock, audit, solve
from windermere.errors import AuditError
from windermere.nn.float64 import double_of
from windermere.nn.functions import Function, deep_copy

SPAN = torch.tensor([0.0, 1.0])


def network(*, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 2))


def head() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(2, 2)


def data() -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    return torch.randn(60, 2), torch.randint(0, 2, (60,))


def solved(net: Any, x: Tensor) -> Any:
    return odeint(lambda t, z: net(z), x, SPAN, method="euler", options={"step_size": 1 / 8})[-1]


class Registered(nn.Module):
    """The model that all others are to be audited like."""

    def __init__(self, net: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.net, self.last = net, last

    def forward(self, x: Tensor) -> Any:
        return self.last(solved(self.net, x))


class Plain:
    """No module, but it can be called."""

    def __init__(self, net: nn.Module, last: nn.Module) -> None:
        self.net, self.last = net, last

    def __call__(self, x: Tensor) -> Any:
        return self.predict(x)

    def predict(self, x: Tensor) -> Any:
        return self.last(solved(self.net, x))


def a_closure(net: nn.Module, last: nn.Module) -> Any:
    return lambda x: last(solved(net, x))


def a_closure_of_closures(net: nn.Module, last: nn.Module) -> Any:
    def rate(z: Tensor) -> Any:
        return net(z)

    def end(x: Tensor) -> Any:
        return solved(rate, x)

    return lambda x: last(end(x))


def a_default(net: nn.Module, last: nn.Module) -> Any:
    def predict(x: Tensor, net: nn.Module = net, *, last: nn.Module = last) -> Any:
        return last(solved(net, x))

    return predict


def a_partial(net: nn.Module, last: nn.Module) -> Any:
    return partial(lambda net, x, *, last: last(solved(net, x)), net, last=last)


SCRIPT = """
def rate(z):
    return net(z)

def predict(x):
    return last(solved(rate, x))
"""


def a_script(net: nn.Module, last: nn.Module) -> Any:
    """What a script or a notebook has at its top level: there are no closures, only global names."""
    names: dict[str, Any] = {"net": net, "last": last, "solved": solved}
    exec(SCRIPT, names)
    return names["predict"]


class Trainer:
    """Holds networks and cannot be called; nor could it be copied as a whole."""

    def __init__(self, net: nn.Module, last: nn.Module) -> None:
        self.net, self.last, self.lock = net, last, threading.Lock()


def of_a_trainer(net: nn.Module, last: nn.Module) -> Any:
    trainer = Trainer(net, last)
    return lambda x: trainer.last(solved(trainer.net, x))


FORMS: list[Callable[[nn.Module, nn.Module], Any]] = [
    a_closure,
    a_closure_of_closures,
    a_default,
    a_partial,
    a_script,
    Plain,
    lambda net, last: Plain(net, last).predict,
    of_a_trainer,
    lambda net, last: Registered(net, last).forward,
]
NAMES = ["closure", "closures", "default", "partial", "script", "object", "method", "trainer", "module's method"]


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
def test_a_function_is_audited_as_the_module_that_does_the_same(form: Callable[[nn.Module, nn.Module], Any]) -> None:
    model, whole = form(network(), head()), Registered(network(), head())
    found, wanted = audit(model, data()), audit(whole, data())
    assert wanted.reference.dtype == "float64"
    assert found.to_dict() == wanted.to_dict()


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
def test_an_audit_changes_nothing_that_a_function_uses(form: Callable[[nn.Module, nn.Module], Any]) -> None:
    net, last = network(dropout=0.5), head()
    before = {name: p.clone() for name, p in net.named_parameters()}
    verdict = audit(form(net, last), data())
    assert verdict.reference.converged, verdict.sentence  # in eval mode there is no dropout
    assert net.training
    for name, parameter in net.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, before[name])


def test_blocks_are_found_in_a_function_too() -> None:
    block, last = ODEBlock(Autonomous(network()), FixedStep("euler", step=1 / 8)), head()
    found, wanted = audit(lambda x: last(block(x)), data()), audit(nn.Sequential(block, last), data())
    assert (found.outcome, found.own, found.table) == (wanted.outcome, wanted.own, wanted.table)


def test_a_function_without_weights_is_audited() -> None:
    verdict = audit(lambda x: solved(torch.sin, x), data())
    assert (verdict.outcome, verdict.reference.dtype) == ("FLOW", "float64")


def test_a_function_that_no_solve_is_seen_in_is_told_what_to_do() -> None:
    last = head()
    with pytest.raises(
        AuditError, match=r"no solve was seen in this function: .*wrap a function in a torch\.nn\.Module"
    ):
        audit(lambda x: last(x), data())
    with pytest.raises(
        AuditError, match=r"no solve was seen in this function: .*or give predict\(x, solver\).*audit_loop"
    ):
        audit(lambda x, solver: last(x), data())
    with pytest.raises(
        AuditError, match=r"calls windermere\.solve, .*: put field and solver into a windermere\.ODEBlock"
    ):
        audit(lambda x: solve(lambda t, z: last(z), x, FixedStep("euler", step=1 / 8)).final, data())


def test_a_module_without_a_forward_is_told_so() -> None:
    listed = nn.ModuleList([ODEBlock(Autonomous(network()), FixedStep("euler", step=1 / 8))])
    for model in (listed, nn.Sequential(listed, head())):
        words = (
            rf"this {type(model).__name__} cannot be called \(Module \[ModuleList\] is missing .*: audit a module that"
        )
        with pytest.raises(AuditError, match=words):
            audit(model, data())


# ---------------------------------------------------------------------------------------------------------
# Networks that are not registered


class InAClosure(nn.Module):
    def __init__(self, net: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.rate, self.last = lambda z: net(z), last

    def forward(self, x: Tensor) -> Any:
        return self.last(solved(self.rate, x))


class InAList(nn.Module):
    def __init__(self, net: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.nets, self.last = {"mine": [net]}, last

    def forward(self, x: Tensor) -> Any:
        return self.last(solved(self.nets["mine"][0], x))


class BehindItself(nn.Module):
    """Its function holds the module, which holds the function."""

    def __init__(self, net: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.pair = (net, last)
        self.rate = lambda z: self.pair[0](z)

    def forward(self, x: Tensor) -> Any:
        return self.pair[1](solved(self.rate, x))


@pytest.mark.parametrize("kind", [InAClosure, InAList, BehindItself])
def test_a_network_that_is_not_registered_is_taken_into_float64_with_its_model(kind: Any) -> None:
    net = network()
    found, wanted = audit(kind(net, head()), data()), audit(Registered(network(), head()), data())
    assert found.notes == ()
    assert found.reference.solver == wanted.reference.solver
    assert found.reference.error == pytest.approx(wanted.reference.error, rel=1e-3)  # one of them may be solved in C
    assert next(net.parameters()).dtype == torch.float32


HIDDEN = head()


class OutOfReach(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Tensor) -> Any:
        return HIDDEN(solved(self.net, x))


class Float32(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Tensor) -> Any:
        return solved(self.net, x.float())


def test_a_network_out_of_reach_is_named_and_not_called_float32() -> None:
    (note,) = audit(OutOfReach(), data()).notes
    assert "it uses a Linear that is not registered as a submodule" in note
    assert "hard-codes" not in note


def test_a_function_without_weights_is_seen_to_solve_where_jax_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
    verdict = audit(lambda x: solved(lambda z: torch.sin(z), x), data())
    assert verdict.reference.dtype == "float64"


def test_a_model_that_does_hard_code_float32_is_told_so() -> None:
    (note,) = audit(Float32(), data()).notes
    assert "so it hard-codes float32" in note


# ---------------------------------------------------------------------------------------------------------
# Copies


def test_a_copied_function_has_weights_of_its_own_and_shares_all_else() -> None:
    net, matrix, calls, lock = network(), torch.eye(2), [0], threading.Lock()

    def predict(x: Tensor, scale: Tensor = torch.tensor(2.0)) -> Any:  # noqa: B008
        with lock:
            calls[0] += 1
        return net(x @ matrix) * scale

    double = double_of(Function(predict))
    x = torch.randn(3, 2)
    assert torch.allclose(double(x.double()), predict(x).double(), rtol=1e-5)
    assert double(x.double()).dtype == torch.float64
    assert (predict(x).dtype, matrix.dtype) == (torch.float32, torch.float32)
    assert calls[0] == 4


def test_functions_that_share_a_network_share_its_copy() -> None:
    net = network()
    both = nn.Identity()
    both.one, both.two = (lambda: net), (lambda: net)  # type: ignore[assignment]
    twin: Any = deep_copy(both).model
    assert twin.one() is twin.two()
    assert twin.one() is not net


class Inside(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        return self.model(x)


@needs_compile
@pytest.mark.parametrize("part", ["the whole", "a part", "a function"])
def test_what_is_compiled_is_audited_as_it_was_before_and_not_compiled_for_it(part: str) -> None:
    graphs = list[Any]()

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    def compiled(what: Any) -> Any:
        return torch.compile(what, backend=backend)

    model = Registered(network(), head())
    forms = {
        "the whole": compiled(model),
        "a part": Inside(compiled(model)),
        "a function": compiled(lambda x: model(x)),
    }
    assert audit(forms[part], data()).to_dict() == audit(model, data()).to_dict()
    assert graphs == []


def test_a_module_that_is_scripted_in_part_is_copied_and_audited_in_float64() -> None:
    net = torch.jit.script(network())
    verdict = audit(Registered(net, head()), data())
    assert (verdict.reference.dtype, verdict.notes) == ("float64", audit(Registered(network(), head()), data()).notes)
