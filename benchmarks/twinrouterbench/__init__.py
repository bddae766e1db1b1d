"""TwinRouterBench's dynamic track: our router behind its `select(ctx)`.

`--router-import steproute.benchmarks.twinrouterbench:make_router`
"""

from steproute.benchmarks.twinrouterbench.adapter import StepRouter, make_router

__all__ = ["StepRouter", "make_router"]
