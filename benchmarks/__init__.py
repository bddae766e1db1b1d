"""Benchmarks that run end to end."""
