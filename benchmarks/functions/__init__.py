"""Benchmarks whose tasks are single Python functions: what a problem is, how a team works on it, how it is graded."""
