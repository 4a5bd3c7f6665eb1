"""A Lightning callback that audits a LightningModule when its training has ended. Needs `windermere-ode[lightning]`."""

from inspect import signature
from math import isfinite
from typing import TYPE_CHECKING, Any

from windermere.auditing.audit import audit
from windermere.auditing.verdict import Outcome, Verdict
from windermere.errors import UsageError, WindermereError, describe_error
from windermere.nn.lightning import lightning_for

if TYPE_CHECKING:
    from pytorch_lightning import Callback, LightningModule, Trainer
else:
    Callback = lightning_for("AuditAtEnd").Callback

__all__ = ["AuditAtEnd"]


class AuditAtEnd(Callback):
    """Audits the module when training has ended, prints the verdict's sentence and advice, and keeps it as `verdict`.

    `data` are batches as `windermere.audit` takes them; None takes those of the first validation loader, or of training
    where there is none. All other arguments are `windermere.audit`'s, such as `metric`. The Trainer's loggers get
    `audit/own`, `audit/flow`, `audit/gap` and `audit/safe_step`, as far as they are known, and for each outcome whether
    it is the one (`audit/FLOW` 1 or 0). In data-parallel training the first rank audits, and the others wait for it.

    What cannot be audited is told in a sentence, and raises nothing: the training that has just ended is worth more.
    """

    def __init__(self, data: Any = None, **options: Any) -> None:
        try:
            signature(audit).bind(None, data, **options)
        except TypeError as error:  # now, and not when training has ended
            raise UsageError(f"AuditAtEnd takes the arguments of windermere.audit, but {error}") from error
        self.data, self.options = data, options
        self.verdict: Verdict | None = None
        """None before the end, on other ranks than the first, and where nothing could be audited."""

    def on_train_end(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """The weights are those of the last update, and the loggers are still open."""
        if trainer.is_global_zero:
            try:
                self.verdict = self._audited(trainer, pl_module)
            except Exception as error:  # whatever the user's code raises: other ranks wait  # noqa: BLE001
                why = str(error) if isinstance(error, WindermereError) else describe_error(error)
                trainer.print(f"AuditAtEnd cannot audit this {type(pl_module).__name__}: {why}")
            else:
                trainer.print(f"{self.verdict.sentence}\n{self.verdict.recommendation}")
                for logger in trainer.loggers:
                    logger.log_metrics(numbers_of(self.verdict), step=trainer.global_step)
        trainer.strategy.barrier("AuditAtEnd")

    def _audited(self, trainer: "Trainer", module: "LightningModule") -> Verdict:
        """Without its Trainer meanwhile, which a copy of the module would copy along."""
        data = _batches_of(trainer) if self.data is None else self.data
        module.trainer = None
        try:
            return audit(module, data, **self.options)
        finally:
            module.trainer = trainer


def _batches_of(trainer: "Trainer") -> Any:
    """A Trainer has one loader, or several in a list or a dict."""
    loaders = trainer.val_dataloaders or trainer.train_dataloader
    if isinstance(loaders, dict):
        loaders = list(loaders.values())
    loader = loaders[0] if isinstance(loaders, list | tuple) and loaders else loaders
    if loader is None:
        raise UsageError("its Trainer has no loader of batches: give AuditAtEnd(data=...)")
    return loader


def numbers_of(verdict: Verdict) -> dict[str, float]:
    """What a logger can draw: the scores, and which of the outcomes it is."""
    gap = None if verdict.gap is None else verdict.gap.value
    scores = {"own": verdict.own.metric, "flow": verdict.reference.metric, "gap": gap, "safe_step": verdict.safe_step}
    known = {f"audit/{name}": float(x) for name, x in scores.items() if x is not None and isfinite(x)}
    return known | {f"audit/{outcome}": float(outcome == verdict.outcome) for outcome in Outcome}
