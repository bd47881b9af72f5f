"""The report of a retest: one HTML page and its figures, written from plain numbers.

It knows outcomes, scores and replies, but no task, model or file layout; whatever it says follows
from `ReportInputs`.
"""

from ninegrid.report.inputs import ReportInputs
from ninegrid.report.page import write_report

__all__ = ["ReportInputs", "write_report"]
