"""Modules that solve: `ODEBlock`, `using`, `Autonomous`; and what is to be known of users' modules that do."""

from windermere.nn.ode_block import Autonomous, ODEBlock, ode_blocks, using

__all__ = ["Autonomous", "ODEBlock", "ode_blocks", "using"]
