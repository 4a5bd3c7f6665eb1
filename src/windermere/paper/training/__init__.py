"""Training as resumable runs of ensembles."""

from windermere.paper.training.batches import check_batch_size
from windermere.paper.training.config import RunConfig, paper_settings
from windermere.paper.training.controllers import Adaptation, make_controller
from windermere.paper.training.ensemble import Ensemble
from windermere.paper.training.evaluation import Evaluation, Labelled, evaluate
from windermere.paper.training.interrupts import StopSign, stop_sign
from windermere.paper.training.loop import TrainingOutcome, train, train_group, train_together
from windermere.paper.training.runs import (
    Trained,
    begun_seeds,
    check_precision,
    gather,
    hold_run,
    leave_behind,
    load_run,
    open_attempt,
    open_run,
    resumed_config,
    start_or_resume,
    trained_ensemble,
)
from windermere.paper.training.trainer import Report, make_ensemble

__all__ = [
    "Adaptation",
    "Ensemble",
    "Evaluation",
    "Labelled",
    "Report",
    "RunConfig",
    "StopSign",
    "Trained",
    "TrainingOutcome",
    "begun_seeds",
    "check_batch_size",
    "check_precision",
    "evaluate",
    "gather",
    "hold_run",
    "leave_behind",
    "load_run",
    "make_controller",
    "make_ensemble",
    "open_attempt",
    "open_run",
    "paper_settings",
    "resumed_config",
    "start_or_resume",
    "stop_sign",
    "train",
    "train_group",
    "train_together",
    "trained_ensemble",
]
