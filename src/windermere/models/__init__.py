"""Models with ODE blocks, and the paper's architectures."""

from windermere.models.architectures import ImageField, SphereField, Stackable, architecture, initialise
from windermere.models.ode_block import Autonomous, ODEBlock, ode_blocks, using

__all__ = [
    "Autonomous",
    "ImageField",
    "ODEBlock",
    "SphereField",
    "Stackable",
    "architecture",
    "initialise",
    "ode_blocks",
    "using",
]
