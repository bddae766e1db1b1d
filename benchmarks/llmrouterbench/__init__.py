"""LLMRouterBench: its result files read, a router's choices written as one more model's result files."""

from steproute.benchmarks.llmrouterbench.results import ResultFile, load_results, route, write_results

__all__ = ["ResultFile", "load_results", "route", "write_results"]
