"""What all tests share: one torch thread, Ctrl-C, and surroundings that say nothing of a terminal.

Small models gain nothing from a second thread, and lose much side by side. Rich and Typer take some variables, among
them one of GitHub's machines, for a terminal in colours or of a certain width, and some of them when first imported.
"""

import os
import signal

import torch

for name in ("COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS", "LINES", "PY_COLORS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)
torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job, and all it starts, would ignore it
