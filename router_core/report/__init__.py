"""The report of a run: one self-contained HTML page."""

from steproute.report.page import write_report
from steproute.report.run import Run, read_run

__all__ = ["Run", "read_run", "write_report"]
