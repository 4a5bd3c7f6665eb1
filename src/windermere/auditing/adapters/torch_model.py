"""A torch module whose solves another library makes, as a subject: what all such libraries share."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from windermere.auditing.adapters.heads import head_between, watching
from windermere.auditing.adapters.interception import Interception
from windermere.auditing.adapters.solves import Asked, Tape
from windermere.auditing.samples import size
from windermere.auditing.subject import (
    Change,
    Insight,
    Pass,
    SolveCount,
    as_outputs,
    ends_of,
    is_of_samples,
    why_not_double,
)
from windermere.errors import AuditError, DoublePrecisionError
from windermere.nn.copies import copy_of, number_of, why_not_copied
from windermere.nn.draws import Draws
from windermere.nn.float64 import double_of, naming_double
from windermere.nn.model_calls import about, evaluating, inputs_for, output_of, packed
from windermere.nn.passes import Passes
from windermere.solvers import Solver


class TorchSubject:
    """A module that asks a library for its solves."""

    library: str
    calls: ClassVar[Interception[Tape]]
    """What the library is asked for, answered by a tape while that watches."""

    def __init__(self, model: nn.Module, example_batch: Any) -> None:
        self.model = model = copy_of(model)
        self._count, self._passes = SolveCount(), Passes(model)
        tape, result = self._run(example_batch, None)
        if not tape.solvers:
            raise AuditError(
                f"this {type(model).__name__} asked {self.library} for no solve on the example batch: "
                "give the module whose forward pass solves, or audit a predict(x, solver)"
            )
        self.solvers: tuple[Solver, ...] = tuple(tape.solvers)
        self._seen = (*tape.notes, *about(result, self.output_of(result)), *why_not_copied(model))
        why_not_double(self, example_batch)  # `Passes` has it among its notes

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._seen, *self._passes.notes)

    def forward(self, x: Any, change: Change | None, *, double: bool = False) -> Pass:
        tape, result = self._run(x, change, double=double)
        states = None if tape.end is None else packed(tape.end, size(x))
        return Pass(
            outputs=as_outputs(self.output_of(result)),
            states=None if states is None else as_outputs(states),
            ends=ends_of(tape.ends, size(x)),
            evaluations=tape.evaluations,
            dtype=self._passes.dtype(double=double),
            straight=tape.straight,
        )

    def insight(self, x: Any) -> Insight | None:
        """The last solve of a pass in float64. None where its state is not one for each sample, where a sample's rate
        can't be had without the rest of the batch, where the model draws, and where it can't run in float64."""
        if self._passes.holds_draws or self._passes.refusal is not None:
            return None
        try:
            model = double_of(self.model)
            tape = Tape(None, double=True)
            with watching(model, tape) as calls:
                result = self._call(model, x, tape)
        except DoublePrecisionError:
            return None
        model.requires_grad_(False)
        asked = tape.last
        start = None if asked is None else packed(asked.start, size(x))
        if asked is None or start is None or tape.end is None:
            return None
        field = _Rate(asked, start)
        if not is_of_samples(field, field.start, asked.times[0]):
            return None
        head = None
        if isinstance(tape.end, Tensor):
            head = head_between(calls, tape.end, self.output_of(result))
        return Insight(field=field, start=field.start, times=(asked.times[0], asked.times[-1]), head=head)

    def output_of(self, result: Any) -> Tensor:
        """What is audited of what a model returns: the first tensor in it."""
        return output_of(result)

    def _run(self, x: Any, change: Change | None, *, double: bool = False) -> tuple[Tape, Any]:
        def one(draws: Draws | None) -> tuple[Tape, Any]:
            model = double_of(self.model) if double else self.model
            tape = Tape(change, double=double, copy=number_of(model), draws=draws)
            return tape, self._call(model, x, tape)

        tape, result = self._passes.run(one, double=double)
        self._count.check(size(x), change, solves=tape.outer + tape.missed, missed=tape.missed)
        return tape, result

    def _call(self, model: nn.Module, x: Any, tape: Tape) -> Any:
        with evaluating(model), self.calls.watching(tape), naming_double(type(model).__name__, tape.double):
            arguments, named = inputs_for(model, x, double=tape.double)
            return model(*arguments, **named)


class _Rate:
    """The field of a solve on states [n, ...]; a tuple's parts lie side by side in [n, D]."""

    def __init__(self, asked: Asked, packed_start: Tensor) -> None:
        self.asked = asked
        self.parts = None if isinstance(asked.start, Tensor) else [part.shape[1:] for part in asked.start]
        self.start = asked.start.detach() if isinstance(asked.start, Tensor) else packed_start

    def __call__(self, t: Tensor, z: Tensor) -> Tensor:
        time = torch.as_tensor(t, dtype=z.dtype, device=z.device)
        if self.parts is None:
            rate: Tensor = self.asked.field(time, z)
            return rate
        pieces = z.split_with_sizes([shape.numel() for shape in self.parts], dim=1)
        state = tuple(piece.reshape(len(z), *shape) for piece, shape in zip(pieces, self.parts, strict=True))
        return torch.cat([k.reshape(len(z), -1) for k in self.asked.field(time, state)], dim=1)
