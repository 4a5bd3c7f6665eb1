"""Handing out work, and keeping count of it: who is at what, who was lost, what goes on where. It knows no Ray.

The driver alone holds the runs' folders. An attempt that ends, however it ends, is taken over into them; one that was
lost is followed by another, until several in a row have come no further.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TypeAlias

from windermere.errors import RunInUseError
from windermere.paper.cluster.pool import Pool
from windermere.paper.cluster.work import Carried, Ending, Lost, Work
from windermere.paper.training import Report, StopSign, hold_run
from windermere.records import RunFolder, hand_out, new_label, reached, take_over

MOST_OUT = 5000
"""How much work is handed out at a time; the rest waits here, where it takes no memory of Ray's and no locks."""
IN_VAIN = 3
"""After so many attempts in a row that came no further, work is given up."""
PAUSE, LOOK = 0.5, 2.0
"""Seconds between two looks at the stop sign, and between two at signs of life, each of which asks another process."""
LONG = 120.0
"""Seconds after which it is told that nothing begins."""
Settle: TypeAlias = Callable[[Sequence[tuple[Work, Ending]]], Iterable[Work]]
"""Does what is to be done about work whose attempts have ended, and says what is to be handed out in turn."""


@dataclass
class _Out:
    """An attempt that is out."""

    work: Work
    begun: ExitStack
    runs: Sequence[RunFolder]
    reached: list[int]
    where: str = "before it began"
    heard: float | None = None
    """When a sign of life was last seen."""


@dataclass
class Driver:
    """One session."""

    pool: Pool
    sign: StopSign
    patience: float = 60.0
    """Seconds without a sign of life after which a process that has begun is taken for lost."""
    tell: Callable[[str], None] = lambda sentence: None
    """Is told what went wrong, and what follows."""
    watch: Callable[[Work, int, str, Report], None] = lambda work, index, where, report: None
    """Sees how far each run is, and where."""
    clock: Callable[[], float] = time.monotonic
    failed: dict[str, str] = field(default_factory=dict)
    """Why work was given up, by the name of its run."""
    _out: dict[str, _Out] = field(default_factory=dict)
    _attempts: dict[Path, int] = field(default_factory=dict)
    _vain: dict[Path, int] = field(default_factory=dict)
    _heard: float = -inf
    """When anything was at work; of what does not begin, it is told once."""
    _next: float = 0.0
    """When signs of life are looked at again."""

    def drive(self, works: Iterable[Work], settle: Settle) -> None:
        """Until all is done or given up, or a stop sign has been obeyed everywhere."""
        waiting, stopped, looked = deque(works), False, self.clock()
        self._next = looked
        try:
            while waiting or self._out:
                if not stopped and (reason := self.sign.check()):
                    stopped = True
                    self._listen(self.clock(), held_up=False)  # who has just begun is let come to a checkpoint
                    self.pool.stop(reason, [label for label, out in self._out.items() if out.heard is None])
                if stopped:
                    waiting.clear()
                while waiting and len(self._out) < MOST_OUT:
                    self._hand_out(waiting.popleft())
                arrived = self.pool.wait(PAUSE)
                now = self.clock()
                held_up, looked = now - looked > self.patience / 2, now
                if arrived or held_up or now >= self._next:
                    self._listen(now, held_up=held_up)
                    self._next = now + LOOK
                ended = [(self._out.pop(label), ending) for label, ending in arrived if label in self._out]
                ended += self._overdue(now)
                kept = [(out.work, ending) for out, ending in ended if self._end(out, ending, stopped)]
                if kept:
                    waiting.extend(settle(kept))
        finally:
            for out in self._out.values():
                out.begun.close()

    def _hand_out(self, work: Work) -> None:
        number = 1 + max((self._attempts.get(run, 0) for run in work.runs), default=0)
        label = new_label(number)
        with ExitStack() as stack:
            try:
                pairs = zip(work.runs, work.configs, strict=True)
                runs = [stack.enter_context(hold_run(run, config)) for run, config in pairs]
            except RunInUseError as error:
                self._give_up(work, str(error))
                return
            for run in runs:
                hand_out(run, label)
                self._attempts[run.path] = number
            far = [reached(run) for run in work.runs]
            self.pool.submit(label, work)
            self._out[label] = _Out(work, stack.pop_all(), runs, far)

    def _listen(self, now: float, *, held_up: bool) -> None:
        """Look at signs of life. Where this process itself was held up, it has missed some."""
        for out in self._out.values():
            out.heard = now if held_up and out.heard is not None else out.heard
        for label, beat in self.pool.beats().items():
            if (known := self._out.get(label)) is not None:  # else it was cut off, and does not know it yet
                known.heard, known.where = now, beat.where
                for index, report in beat.reports.items():
                    self.watch(known.work, index, beat.where, report)
        if held_up or self._heard == -inf or any(out.heard is not None for out in self._out.values()):
            self._heard = now
        elif self._out and now - self._heard > LONG:
            work, self._heard = next(iter(self._out.values())).work, inf
            self.tell(f"{work} waits: nowhere is there room yet for a process with {work.resources}")

    def _overdue(self, now: float) -> list[tuple[_Out, Ending]]:
        late = [k for k, out in self._out.items() if out.heard is not None and now - out.heard > self.patience]
        for label in late:
            self.pool.abandon(label)
        why = f"nothing was heard of its process for {self.patience:.0f} s"
        return [(self._out.pop(label), Lost(why)) for label in late]

    def _end(self, out: _Out, ending: Ending, stopped: bool) -> bool:
        """Take over what an attempt has reached; whether its work is to be settled."""
        with out.begun:
            for run in out.runs:
                take_over(run)
        if not isinstance(ending, Lost):
            for index, outcome in enumerate(ending.outcomes if isinstance(ending, Carried) else []):
                if outcome.finished:
                    self._vain.pop(out.work.runs[index], None)
            return True
        return not stopped and self._goes_on(out, ending)

    def _goes_on(self, out: _Out, lost: Lost) -> bool:
        """Whether there is to be another attempt after one that was lost."""
        work, far = out.work, [reached(run) for run in out.work.runs]
        vain = 0 if far > out.reached else 1 + max((self._vain.get(run, 0) for run in work.runs), default=0)
        self._vain |= dict.fromkeys(work.runs, vain)
        where = f"{work} ({out.where}): {lost.why}"
        if not lost.again:
            self._give_up(work, where)
        elif vain >= IN_VAIN:
            self._give_up(work, f"{where}; {vain} attempts in a row came no further")
        else:
            self.tell(f"{where}; it goes on from iteration {min(far, default=0)}")
            return True
        return False

    def _give_up(self, work: Work, why: str) -> None:
        self.tell(f"given up: {why}")
        self.failed |= {run.name: why for run in work.runs}
