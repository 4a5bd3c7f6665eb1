"""An audit changes nothing that another thread sees: no mode, no hook, no solver, no library."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import pytest
import torch
import torchdiffeq
from torch import Tensor, nn
from torchdiffeq._impl.odeint import SOLVERS

import windermere as wm
from tests.auditing.adapters.models import points
from tests.threads import run_together
from windermere.auditing.adapters.torchdiffeq import TorchdiffeqSubject
from windermere.auditing.block_model import ModelSubject
from windermere.auditing.threads import is_small
from windermere.errors import AuditError, MissedSolvesError
from windermere.fast.cpu.native_call import threads_for_c_alone
from windermere.nn.copies import copy_of

PASSES = 1000
EULER: dict[str, Any] = {"method": "euler", "options": {"step_size": 0.5}}
SMALL: dict[str, Any] = {"evidence": False, "candidates": (), "budget": 300}


class Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(2, 2)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.net(z)


class Theirs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.field = Field()

    def forward(self, x: Tensor) -> Any:
        return torchdiffeq.odeint(self.field, x, torch.tensor([0.0, 1.0]).to(x), **EULER)[-1]


def ours() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(wm.ODEBlock(Field(), wm.FixedStep("euler", step=1 / 2)))


def labelled() -> tuple[Tensor, Tensor]:
    x = points().float()
    return x, torch.zeros(len(x), dtype=torch.int64)


@pytest.mark.parametrize("make", [ours, Theirs])
def test_passes_beside_audits_in_eight_threads_are_solved_by_their_own_solver(make: Callable[[], nn.Module]) -> None:
    model, batch = make(), labelled()
    table, (x, _), audits = dict(SOLVERS), batch, []
    with torch.no_grad():
        expected = model(x)

    def audit() -> None:
        for _ in range(3):
            audits.append(wm.audit(model, batch, **SMALL))

    def passes() -> int:
        with torch.no_grad():
            return sum(not torch.equal(model(x), expected) for _ in range(PASSES // 5))

    wrong = run_together(audit, audit, audit, *[passes] * 5)
    assert sum(n or 0 for n in wrong) == 0
    assert table == SOLVERS
    assert len({str(verdict) for verdict in audits}) == 1


def test_the_table_is_put_back_by_the_last_of_overlapping_audits() -> None:
    model, batch = Theirs(), labelled()
    table = dict(SOLVERS)
    subject = TorchdiffeqSubject(model, batch[0])

    def nested(own: wm.FixedStep) -> Any:  # an audit within a pass of another one
        run_together(lambda: wm.audit(model, batch, **SMALL))
        return own

    assert subject.forward(batch[0], nested).outputs.isfinite().all()  # type: ignore[arg-type]
    assert table == SOLVERS


def test_a_solver_that_someone_registers_during_an_audit_stays() -> None:
    model, x = Theirs(), labelled()[0]
    own = SOLVERS["euler"]
    with TorchdiffeqSubject.calls.watching(TorchdiffeqSubject(model, x)._run(x, None)[0]):
        SOLVERS["mine"] = own
    assert SOLVERS.pop("mine") is own
    assert SOLVERS["euler"] is own


@pytest.mark.parametrize("make", [ours, Theirs])
def test_an_audit_leaves_modes_hooks_and_parameters_of_the_model_alone(make: Callable[[], nn.Module]) -> None:
    model = make()
    seen = list[tuple[bool, int, torch.dtype]]()
    watched: Any = model

    def look() -> None:
        for module in watched.modules():
            seen.append((module.training, len(module._forward_hooks), next(watched.parameters()).dtype))

    def metric(outputs: Tensor, labels: Tensor) -> Tensor:  # asked in the midst of the audit
        run_together(look)
        return outputs[:, 0]

    look()
    wm.audit(model, labelled(), metric=metric, threshold=0.1)
    assert len(set(seen)) == 1
    assert len(seen) > 10


def test_a_model_that_cannot_be_copied_is_audited_itself_and_the_verdict_says_so() -> None:
    model: Any = ours()
    model.lock = Lock()
    verdict = wm.audit(model, labelled(), **SMALL)
    assert any("cannot be copied" in note for note in verdict.notes)
    assert not any("hard-codes" in note for note in verdict.notes)
    assert model.training


class Itself(Theirs):
    def __deepcopy__(self, memo: Any) -> Any:
        return self


class Uncopied(Theirs):
    def __deepcopy__(self, memo: Any) -> Any:
        raise LookupError("no copies")


@pytest.mark.parametrize(
    ("make", "words"), [(Itself, "a copy of it is the module itself"), (Uncopied, "LookupError: no copies")]
)
def test_what_copying_a_model_does_wrong_is_noted_and_not_taken_for_float32(make: type[Theirs], words: str) -> None:
    verdict = wm.audit(make(), labelled(), **SMALL)
    alone, in_float64 = verdict.notes
    assert "cannot be copied, so it is audited itself" in alone
    assert in_float64 == f"this {make.__name__} cannot be copied into float64: {words}"


def test_an_audit_inside_of_using_is_about_the_solver_used() -> None:
    model, finer = ours(), wm.FixedStep("rk4", step=1 / 4)
    with wm.using(model, finer):
        inside = wm.audit(model, labelled(), **SMALL)
    assert inside.own.solver == str(finer)
    assert wm.audit(model, labelled(), **SMALL).own.solver == "euler, h = 1/2"


def test_the_module_inside_of_data_parallel_is_audited() -> None:
    assert (
        wm.audit(nn.DataParallel(ours()), labelled(), **SMALL).outcome is wm.audit(ours(), labelled(), **SMALL).outcome
    )


class InThreads(nn.Module):
    """Runs its parts as DataParallel does: in threads that know nothing of the caller's context."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Any:
        results = dict[int, Any]()

        def run(k: int) -> None:
            with torch.no_grad():
                results[k] = self.parts[k](x)

        threads = [Thread(target=partial(run, k)) for k in range(1, len(self.parts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.parts[0](x) + sum(results.values())


def test_a_solve_in_a_thread_of_the_models_own_is_noticed_where_blocks_solve() -> None:
    model, (x, _) = InThreads(ours(), ours()), labelled()
    subject = ModelSubject(model)
    assert subject.forward(x, None).outputs.isfinite().all()
    with pytest.raises(MissedSolvesError, match="1 of 2 solves of a pass run in threads that the model starts itself"):
        subject.forward(x, lambda own: wm.FixedStep("rk4", step=1 / 4))


@pytest.mark.parametrize("make", [ours, Theirs])
def test_a_model_with_solves_in_threads_of_its_own_is_undecided_and_told_why(make: Callable[[], nn.Module]) -> None:
    verdict = wm.audit(InThreads(make(), make()), labelled())
    assert verdict.outcome == "UNDECIDED"
    assert "1 of 2 solves of a pass run in threads that the model starts itself" in verdict.sentence
    assert verdict.gap is None


def test_a_model_all_of_whose_solves_are_in_threads_of_its_own_is_refused() -> None:
    with pytest.raises(AuditError, match="solves with torchdiffeq in threads that it starts itself"):
        wm.audit(InThreads(nn.Identity(), Theirs()), labelled())


def test_a_model_that_solves_less_often_under_another_solver_is_noticed() -> None:
    class Remembering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.passes = ours(), ours(), 0

        def forward(self, x: Tensor) -> Any:
            self.passes += 1
            return self.second(self.first(x)) if self.passes == 1 else self.first(x)

    subject, (x, _) = ModelSubject(Remembering()), labelled()
    subject.forward(x, None)
    with pytest.raises(MissedSolvesError, match="solves 2 times with its own solver, and 1 times with another"):
        subject.forward(x, lambda own: own)


def test_a_model_whose_solves_depend_on_the_solver_is_undecided() -> None:
    class Searching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = ours()

        def forward(self, x: Tensor) -> Any:
            end = self.block(x)
            return self.block(end) if float(end.detach().abs().max() * 1e6) % 2 < 1 else end

    verdicts = [wm.audit(Searching(), (x + shift, y), **SMALL) for (x, y) in [labelled()] for shift in (0, 0.3, 0.7)]
    assert any("an audit needs the same solves in every pass" in verdict.sentence for verdict in verdicts)


def test_a_copy_is_made_once() -> None:
    model = ours()
    twin = copy_of(model)
    assert twin is not model
    assert copy_of(twin) is twin
    assert not twin.training
    assert model.training


class Noting(nn.Module):
    """Notes how many threads PyTorch has while it is solved."""

    def __init__(self, units: int, note: Callable[[int], None]) -> None:
        super().__init__()
        self.net, self.note = nn.Sequential(nn.Linear(2, units), nn.Linear(units, 2)), note

    def forward(self, t: Tensor, z: Tensor) -> Any:
        self.note(torch.get_num_threads())
        return 0.01 * self.net(z)


def noting(units: int, note: Callable[[int], None]) -> wm.ODEBlock:
    return wm.ODEBlock(Noting(units, note), wm.FixedStep("euler", step=1 / 2))


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads", "coarse_pictures")
def test_a_small_model_is_audited_with_one_thread_of_pytorch(tmp_path: Path) -> None:
    seen: list[int] = []
    verdict = wm.audit(noting(8, seen.append), points(100), candidates=(), budget=300)
    audited = seen[-1]
    verdict.save(tmp_path / "audit.html")
    assert (audited, seen[-1], torch.get_num_threads()) == (1, 1, 2)


@pytest.mark.parametrize(("units", "samples", "small"), [(8, 1000, True), (3000, 1000, False), (8, 40000, False)])
def test_a_wide_model_or_a_large_batch_is_not_small(units: int, samples: int, small: bool) -> None:
    assert is_small(ModelSubject(noting(units, list[int]().append)), points(samples)) == small


@pytest.mark.usefixtures("two_threads")
def test_after_audits_side_by_side_new_threads_have_as_many_as_ever() -> None:
    inside, beside, gone = Event(), Event(), Event()

    def first() -> None:
        with threads_for_c_alone():
            inside.set()
            beside.wait()
        gone.set()

    def second() -> None:
        inside.wait()
        with threads_for_c_alone():
            beside.set()
            gone.wait()

    run_together(first, second)
    assert run_together(torch.get_num_threads) == [2]
