"""Models that turn points in the plane."""

from torch import nn

import windermere as wm
from tests.auditing.test_known_cases import Rotation


def rotating(*head: nn.Module) -> nn.Sequential:
    return nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=2)), *head)
