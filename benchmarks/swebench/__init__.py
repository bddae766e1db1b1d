"""SWE-bench: GitHub issues solved by mini-swe-agent with a routed model, graded by the benchmark's own scripts."""
