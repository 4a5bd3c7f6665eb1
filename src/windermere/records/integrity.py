"""Digests by which files that are plain text tell damage: those of all settings that a run has had, and of its rows."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windermere.records.atomic import damaged, open_to_read, storing

CONFIGS = "configs"
"""The entry of environment.json with the digests of every config.json that the run has had. It is written before each
of these, so that a kill between the two leaves one that is known."""
PIECE = 1 << 20


def config_digest(config: Mapping[str, Any]) -> str:
    """SHA-256 of settings, however they are laid out."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def check_config(path: Path, config: Mapping[str, Any], noted: Mapping[str, Any]) -> None:
    """Refuses a config.json that the run in folder `path` never had. Runs of earlier versions have noted none."""
    known = noted.get(CONFIGS)
    if known is not None and (not isinstance(known, list) or config_digest(config) not in known):
        raise damaged(path / "config.json", "it is not as it was written, by the digests in environment.json")


def digest_of_file(path: Path, length: int) -> "hashlib._Hash":
    """SHA-256 of a file's first bytes, to go on with; of none where the file is missing."""
    digest = hashlib.sha256()
    with storing(path, "read"):
        if not path.exists():
            return digest
        with open_to_read(path) as file:
            while length > 0 and (piece := file.read(min(length, PIECE))):
                digest.update(piece)
                length -= len(piece)
    return digest
