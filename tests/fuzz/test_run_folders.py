"""A run's folder under whatever happens to it: the end is that of the run that nothing happened to, bit for bit, or a
sentence refuses to go on; never is it silently another one."""

import shutil
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.fuzz.commands import written
from tests.fuzz.damage import damaged, otherwise
from tests.fuzz.judging import outcome
from tests.fuzz.profiles import count
from tests.fuzz.sittings import CONFIGS, Killed, result, sit, uninterrupted
from windermere.errors import WindermereError
from windermere.records import read_json, write_json

FILES = ["config.json", "environment.json", "metrics.jsonl", "checkpoint.safetensors", "model.safetensors", "lock"]


class RunsInFolders(RuleBasedStateMachine):
    """Trains a little, is killed, moved and damaged, and goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(mkdtemp())
        self.folder, self.number, self.moves = self.place / "run", 0, 0

    @property
    def config(self) -> Any:
        return CONFIGS[self.number]

    @initialize(number=st.integers(0, len(CONFIGS) - 1))
    def choose(self, number: int) -> None:
        self.number = number

    @rule(killed=st.integers(0, 70))
    def is_killed(self, killed: int) -> None:
        try:
            sit(self.folder, self.config, killed=killed)
        except Killed:
            return
        assert result(self.folder) == uninterrupted(self.number)

    @rule(stop_at=st.integers(1, 12))
    def is_stopped(self, stop_at: int) -> None:
        sit(self.folder, self.config, stop_at=stop_at)

    @precondition(lambda self: self.folder.exists())
    @rule()
    def moves_house(self) -> None:
        self.moves += 1
        self.folder = self.folder.rename(self.place / f"run {self.moves}")

    @precondition(lambda self: (self.folder / "config.json").exists())
    @rule(seed=st.integers(0, 2**32 - 1))
    def is_damaged(self, seed: int) -> None:
        """One file; a run that goes on in spite of it must come to the same end."""
        chance = Random(seed)
        kept = self.place / "kept"
        shutil.copytree(self.folder, kept)
        there = sorted(name for name in FILES if (self.folder / name).exists())
        path = self.folder / chance.choice(there)
        if chance.random() < 0.1:
            path.unlink()
        elif path.suffix == ".json" and chance.random() < 0.5:
            write_json(path, otherwise(chance, read_json(path)))
        else:
            path.write_bytes(damaged(chance, path.read_bytes()))
        before = written(self.folder)
        done = outcome(lambda: sit(self.folder, self.config))
        if isinstance(done, WindermereError):
            assert written(self.folder) == before or path.name == "lock"
        else:
            assert result(self.folder) == uninterrupted(self.number)
        shutil.rmtree(self.folder)
        kept.rename(self.folder)

    @invariant()
    def nothing_lies_beside_it(self) -> None:
        assert {path.name for path in self.place.iterdir()} <= {self.folder.name}

    def teardown(self) -> None:
        try:
            sit(self.folder, self.config)
            assert result(self.folder) == uninterrupted(self.number)
        finally:
            shutil.rmtree(self.place)


TestRunsInFolders = RunsInFolders.TestCase
TestRunsInFolders.settings = settings(max_examples=count("folders"), stateful_step_count=8)
