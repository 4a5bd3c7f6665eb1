"""Solves in a thread with two megabytes of stack: what threads have where stacks are unlimited (glibc)."""

import subprocess
import sys

from tests.processes import ROOT, surroundings

SOLVED = """
import threading, torch
from windermere.solvers import Adaptive, FixedStep, solve
ended = []
{made}
def work():
    solve(field, z, FixedStep("dopri54", step=1.0)).final.sum().backward()
    solve(field, z, Adaptive("dopri54", tolerance=1.0), gradient="adjoint").final.sum().backward()
    ended.append(True)
threading.stack_size(2 << 20)
thread = threading.Thread(target=work)
thread.start()
thread.join()
raise SystemExit(not ended)
"""


def succeeds(script: str) -> bool:
    """In a process of its own: a crash takes the process with it."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=ROOT, env=surroundings(), timeout=600).returncode == 0


def is_solved_on_a_small_stack(made: str) -> bool:
    """A `field` from a state `z`, as this script makes them."""
    return succeeds(SOLVED.format(made=made))
