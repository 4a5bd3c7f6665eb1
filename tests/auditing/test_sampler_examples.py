"""The examples of samplers run to their end, only shorter."""

from collections.abc import Callable


def distances(text: str) -> list[float]:
    return [float(line.rsplit(":", 1)[1]) for line in text.splitlines() if " evaluations: " in line]


def test_flow_matching_in_plain_pytorch_has_a_right_loop_and_better_samples_with_more_steps(
    example: Callable[..., str],
) -> None:
    text = example("flow_matching_audit.py", "--iterations", 60)
    assert text.startswith("AGREES")
    assert len(distances(text)) == 6


def test_a_diffusion_sampler_on_the_exact_score_reaches_the_noise_of_real_samples(example: Callable[..., str]) -> None:
    text = example("diffusion_audit.py")
    few, *_, many = distances(text)
    limit = float(text.split("below ")[1].split(")")[0])
    assert many < limit < few
