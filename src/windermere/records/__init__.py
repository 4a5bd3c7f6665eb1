"""What is kept on disk: run folders and the files inside."""

from windermere.records.atomic import (
    damaged,
    in_the_way,
    open_file,
    read_json,
    refuse_unless_file,
    storing,
    write_atomically,
    write_json,
)
from windermere.records.attempts import ATTEMPTS, AttemptFolder, copy_run, hand_out, new_label, reached, take_over
from windermere.records.environment import environment
from windermere.records.integrity import CONFIGS
from windermere.records.lock import not_in_use, other_files
from windermere.records.run_files import Run, read_metrics, read_run
from windermere.records.run_folder import RunFolder
from windermere.records.table import RowFile, read_rows, sparse, write_rows
from windermere.records.tensors import TensorFile, plain, read_tensors, write_tensors

__all__ = [
    "ATTEMPTS",
    "CONFIGS",
    "AttemptFolder",
    "RowFile",
    "Run",
    "RunFolder",
    "TensorFile",
    "copy_run",
    "damaged",
    "environment",
    "hand_out",
    "in_the_way",
    "new_label",
    "not_in_use",
    "open_file",
    "other_files",
    "plain",
    "reached",
    "read_json",
    "read_metrics",
    "read_rows",
    "read_run",
    "read_tensors",
    "refuse_unless_file",
    "sparse",
    "storing",
    "take_over",
    "write_atomically",
    "write_json",
    "write_rows",
    "write_tensors",
]
