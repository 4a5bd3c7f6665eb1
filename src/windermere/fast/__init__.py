"""Whole solves as one piece, for any network: in C on a CPU, in one kernel or by captured steps on a GPU."""

from windermere.fast.captured.path import CapturedSteps
from windermere.fast.cpu.rows import RowsInC
from windermere.fast.gpu.path import RowsOnGpu
from windermere.solvers import register

register(RowsInC(), RowsOnGpu(), CapturedSteps())
