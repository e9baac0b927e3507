"""Reports: where the promise stands, as numbers, text and pictures."""

from fairsync.report.report import Report, Status, make_report

__all__ = ["Report", "Status", "make_report"]
