"""Training as resumable runs of ensembles."""

from windermere.training.batches import check_batch_size
from windermere.training.config import RunConfig, paper_settings
from windermere.training.ensemble import Ensemble
from windermere.training.evaluation import Evaluation, Labelled, evaluate
from windermere.training.interrupts import StopSign, stop_sign
from windermere.training.loop import Outcome, train
from windermere.training.runs import (
    Trained,
    check_precision,
    leave_behind,
    load_run,
    open_run,
    resumed_config,
    trained_ensemble,
)
from windermere.training.together import train_together
from windermere.training.under_way import Report, make_ensemble

__all__ = [
    "Ensemble",
    "Evaluation",
    "Labelled",
    "Outcome",
    "Report",
    "RunConfig",
    "StopSign",
    "Trained",
    "check_batch_size",
    "check_precision",
    "evaluate",
    "leave_behind",
    "load_run",
    "make_ensemble",
    "open_run",
    "paper_settings",
    "resumed_config",
    "stop_sign",
    "train",
    "train_together",
    "trained_ensemble",
]
