"""CodeRouterBench (arXiv 2606.22902), or any table of its form: scores and costs of every model on every task."""

from steproute.benchmarks.coderouterbench.replay import Replay, ReplaySettings, replay
from steproute.benchmarks.coderouterbench.table import OutcomeTable, load_prior, load_table

__all__ = ["OutcomeTable", "Replay", "ReplaySettings", "load_prior", "load_table", "replay"]
