"""Whole solves as one piece, for any network: in C on a CPU, by captured steps on a GPU."""

from windermere.fast.captured.path import CapturedSteps
from windermere.fast.cpu.rows import RowsInC
from windermere.solvers import register

register(RowsInC(), CapturedSteps())
