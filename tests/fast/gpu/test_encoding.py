"""Instructions for the kernel: threads wait where they must, and products take along what follows."""

import numpy as np
import torch

from tests.fast.fields import Likelihood, WithTime, made
from tests.fast.spheres import DOUBLE
from windermere.fast.cpu import encoding as cpu
from windermere.fast.cpu.instructions import code_of
from windermere.fast.gpu.encoding import Encoding, Machine, Step, split_of, waits
from windermere.fast.trace import trace
from windermere.solvers.field import packed_rate
from windermere.solvers.layout import lay_out

GPU = Machine(threads=256, lanes=32, rows=4)


def encoding(kind: type, *widths: int) -> Encoding:
    parts = tuple(torch.rand(5, w, dtype=DOUBLE) for w in widths)
    state = parts if len(parts) > 1 else parts[0]
    layout = lay_out(state, members=None, samples=False)
    z = layout.pack(state).requires_grad_()
    program = trace(packed_rate(layout, made(kind)), torch.tensor(0.3, dtype=DOUBLE), z).program
    return Encoding.of(code_of(program, frozenset(range(len(program.sizes))), 1), GPU, program.points)


def test_a_network_of_three_layers_is_three_instructions() -> None:
    there, back = encoding(WithTime, 2).lists()
    assert [step.code for step in there] == [cpu.LINEAR] * 3
    assert [step.code for step in back] == [cpu.OUTER, cpu.LINEAR] * 3 + [cpu.SCALED]
    assert sum(step.noted is not None for step in back) == 3  # the gradients of biases


def threads_of(step: Step, machine: Machine) -> dict[tuple[int, int], set[int]]:
    """By number on chip, who reads or writes it: one thread, or where that is not known all."""
    found: dict[tuple[int, int], set[int]] = {}
    for p in step.touched:
        for e in range(p.size):
            alone = step.is_by_number and p.has_rows and bool(p.by)
            found.setdefault((p.space, p.start + e), set()).update(
                {e % machine.threads} if alone else range(machine.threads)
            )
    return found


def test_nobody_touches_what_another_thread_wrote_without_waiting() -> None:
    for list_ in encoding(Likelihood, 2, 1).lists():
        since: list[Step] = []
        for step, wait in zip(list_, waits(list_), strict=True):
            for before in since:
                old, new = threads_of(before, GPU), threads_of(step, GPU)
                written = {(p.space, p.start + e) for s in (before, step) for p in s.written for e in range(p.size)}
                for number in written & old.keys() & new.keys():
                    assert len(old[number] | new[number]) == 1
            since = [] if wait else [*since, step]
        assert wait


def test_threads_that_go_in_step_read_a_matrix_from_different_banks() -> None:
    own = encoding(WithTime, 2)
    for block in own.code.blocks[: own.code.laid]:
        if block["out"]:
            _, line = own.places[int(block["place"])]
            split = split_of(int(block["out"]), int(block["in"]), GPU)
            width = min(GPU.lanes // split, int(block["out"]))
            banks = np.add.outer(np.arange(split) * line, np.arange(width)) % GPU.lanes
            assert np.unique(banks, return_counts=True)[1].max() <= 2
