"""Reports: the progress of the promises as numbers, text and plots."""

from fairsync.report.report import Report, Status, make_report

__all__ = ["Report", "Status", "make_report"]
