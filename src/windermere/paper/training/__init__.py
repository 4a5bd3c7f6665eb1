"""Training as resumable runs of ensembles."""

from windermere.paper.training.batches import check_batch_size
from windermere.paper.training.config import RunConfig, paper_settings
from windermere.paper.training.controllers import Adaptation, make_controller
from windermere.paper.training.ensemble import Ensemble
from windermere.paper.training.evaluation import Evaluation, Labelled, evaluate
from windermere.paper.training.interrupts import StopSign, stop_sign
from windermere.paper.training.loop import TrainingOutcome, train, train_together
from windermere.paper.training.runs import (
    Trained,
    check_precision,
    leave_behind,
    load_run,
    open_run,
    resumed_config,
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
    "check_batch_size",
    "check_precision",
    "evaluate",
    "leave_behind",
    "load_run",
    "make_controller",
    "make_ensemble",
    "open_run",
    "paper_settings",
    "resumed_config",
    "stop_sign",
    "train",
    "train_together",
    "trained_ensemble",
]
