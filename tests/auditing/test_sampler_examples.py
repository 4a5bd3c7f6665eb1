"""The examples of samplers run as a reader would run them, only shorter."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(name: str, *options: str) -> str:
    done = subprocess.run([sys.executable, str(EXAMPLES / name), *options], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def distances(text: str) -> list[float]:
    return [float(line.rsplit(":", 1)[1]) for line in text.splitlines() if "evaluations" in line]


def test_flow_matching_in_plain_pytorch_has_a_right_loop_and_better_samples_with_more_steps() -> None:
    text = printed("flow_matching_audit.py", "--iterations", "60")
    assert text.startswith("AGREES")
    assert len(distances(text)) == 6


def test_a_diffusion_sampler_on_the_exact_score_reaches_the_noise_of_real_samples() -> None:
    text = printed("diffusion_audit.py")
    few, *_, many = distances(text)
    limit = float(text.split("below ")[1].split(")")[0])
    assert many < limit < few
