"""HumanEval solved by a team of agents, every call's model chosen by steproute."""

from steproute.benchmarks.humaneval.run import HumanEval

__all__ = ["HumanEval"]
