"""`steproute preflight CONFIG`: what is wrong with a configuration before the first call is made."""

from steproute.preflight.checks import preflight
from steproute.preflight.finding import Finding, Level

__all__ = ["Finding", "Level", "preflight"]
