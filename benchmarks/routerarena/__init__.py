"""RouterArena: prediction and configuration files in its format."""

from steproute.benchmarks.routerarena.predictions import load_prompts, predictions, write_submission

__all__ = ["load_prompts", "predictions", "write_submission"]
