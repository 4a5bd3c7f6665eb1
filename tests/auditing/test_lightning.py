"""An audit at the end of a Lightning training, with the real Lightning."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.adaptation.kit import INSTALLED, WARNINGS, batches, classifier, imported, remembering
from windermere.errors import UsageError
from windermere.solvers import FixedStep

pytestmark = [*WARNINGS, pytest.mark.skipif(not INSTALLED, reason="Lightning is not installed")]
EULER = FixedStep.of("euler", steps=4)


def fitted(pl: Any, callback: Any, module: Any, *loaders: Any, logger: Any = False) -> Any:
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=8,
        callbacks=[callback],
        logger=logger,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, *loaders)
    return trainer


@pytest.fixture
def pl() -> Any:
    return imported(INSTALLED[0])


@pytest.fixture
def audit_at_end(pl: Any) -> Any:
    return imported("windermere.auditing.lightning").AuditAtEnd


def test_a_training_ends_with_a_verdict_in_words_and_in_the_loggers(
    pl: Any, audit_at_end: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    callback, module, logger = audit_at_end(evidence=False, samples=64), classifier(pl)(EULER), remembering(pl)
    trainer = fitted(pl, callback, module, batches(), logger=logger)
    verdict = callback.verdict
    assert verdict is not None
    assert f"{verdict.sentence}\n{verdict.recommendation}" in capsys.readouterr().out
    step, numbers = logger.told[-1]
    assert (verdict.samples, step) == (64, 8)
    assert numbers["audit/own"] == pytest.approx(verdict.own.metric)
    assert [name for name, one in numbers.items() if name.removeprefix("audit/").isupper() and one] == [
        f"audit/{verdict.outcome}"
    ]
    assert module.trainer is trainer


def test_batches_are_those_of_validation_unless_others_are_given(pl: Any, audit_at_end: Any) -> None:
    module = classifier(pl)(EULER)
    module.validation_step = lambda batch, batch_idx, dataloader_idx=0: None
    of_validation, given = audit_at_end(evidence=False), audit_at_end(batches(samples=32), evidence=False)
    for callback, samples in ((of_validation, 48), (given, 32)):
        fitted(pl, callback, module, batches(), [batches(samples=48), batches(samples=16)])
        assert callback.verdict.samples == samples


def test_what_cannot_be_audited_is_told_and_the_training_stands(
    pl: Any, audit_at_end: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    module, callback = classifier(pl)(EULER), audit_at_end(evidence=False)
    module.model = nn.Sequential(nn.Linear(2, 2))
    before = module.model[0].weight.detach().clone()
    fitted(pl, callback, module, batches())
    assert callback.verdict is None
    assert "AuditAtEnd cannot audit this Classifier: " in capsys.readouterr().out
    assert not torch.equal(before, module.model[0].weight)


def test_a_model_that_raises_at_the_end_and_options_that_do_not_exist_are_told(
    pl: Any, audit_at_end: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    callback = audit_at_end((torch.zeros(8, 5), torch.zeros(8, dtype=torch.int64)), evidence=False)
    fitted(pl, callback, classifier(pl)(EULER), batches())
    assert "AuditAtEnd cannot audit this Classifier: " in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"takes the arguments of windermere.audit, but got an unexpected .* 'metrik'"):
        audit_at_end(metrik="mse")
