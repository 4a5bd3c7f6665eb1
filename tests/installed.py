"""Try distributions as a stranger would: each is installed into an empty environment, which then, in an empty folder,
tells its version, trains and audits the demo's models, audits a model of one's own and runs a quick study.

    python tests/installed.py dist/*.whl dist/*.tar.gz
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN_MODEL = """
import torch
import windermere as wm

def load():
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    block = wm.ODEBlock(lambda t, z: z @ turn, wm.FixedStep("rk4", step=1 / 8))
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    return block, [(x, (x[:, 0] < 0).long())]
"""
VERSIONS = """
from importlib.metadata import version
import windermere
assert version("windermere-ode") == windermere.__version__ and "site-packages" in windermere.__file__, windermere
"""
TIED = 10
"""The exit code of an audit that finds a model tied to its solver."""


def call(folder: Path, *command: object, code: int = 0) -> None:
    """Run a command in a folder, without the surroundings that could lead to another copy of the package."""
    print("$", *command, flush=True)
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    found = subprocess.run([*map(str, command)], cwd=folder, env=own, check=False).returncode
    if found != code:
        raise SystemExit(f"{command[0]} ended with {found}, not {code}")


def try_out(distribution: Path, folder: Path) -> None:
    """Install a distribution below a folder and use it there."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    python, windermere = programs / "python", programs / "windermere"
    call(folder, python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", distribution)
    call(folder, python, "-c", VERSIONS)
    call(folder, windermere, "--version")
    call(folder, windermere, "demo")
    call(folder, windermere, "audit", "runs/demo/coarse", code=TIED)
    (folder / "own_model.py").write_text(OWN_MODEL)
    call(folder, windermere, "audit", "own_model:load")
    call(folder, windermere, "study", "run", "fan", "--quick")


def main() -> None:
    distributions = [Path(name).resolve() for name in sys.argv[1:]]
    if not distributions or not all(path.is_file() for path in distributions):
        raise SystemExit("name the files to try, as dist/*.whl and dist/*.tar.gz: `make dist` makes them")
    for distribution in distributions:
        with tempfile.TemporaryDirectory() as folder:
            try_out(distribution, Path(folder))
        print(f"{distribution.name}: installs and runs", flush=True)


if __name__ == "__main__":
    main()
