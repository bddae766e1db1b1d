"""Frameworks that call steproute."""
