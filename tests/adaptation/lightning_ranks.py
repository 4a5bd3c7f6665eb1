"""A training by Lightning under torchrun, on batches of each rank's own; prints the step of each batch."""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

from tests.adaptation.kit import INSTALLED, Kit, batches
from windermere.adaptation import SteadySteps
from windermere.solvers import FixedStep

CONTROLLER = SteadySteps(train="euler", check="midpoint", every=4, target=0.02)
STEPS, SAVED_EVERY = 24, 5


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    kit = Kit(INSTALLED[0])

    class Told(kit.pl.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            step = module.used[-1].precision
            decision = "" if adapt.state.decision is None else adapt.state.decision.reason
            line = f"{trainer.global_step:5d}  rank {os.environ['RANK']}  {step!r}  {decision}"
            print(f"{line}\n", end="", flush=True)

    adapt = kit.adapt(CONTROLLER)
    saving = kit.pl.callbacks.ModelCheckpoint(dirpath=folder, save_last=True, every_n_train_steps=SAVED_EVERY)
    trainer = kit.trainer(STEPS, adapt, Told(), saving, strategy="ddp", devices=4, enable_checkpointing=True)
    last = folder / "last.ckpt"
    module = kit.Classifier(FixedStep("euler", step=0.5), dropout=0.0)
    trainer.fit(module, batches(samples=512), ckpt_path=str(last) if last.exists() else None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
